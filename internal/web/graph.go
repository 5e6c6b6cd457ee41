package web

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"ratchet/internal/plan"
)

// Sizes of the drawn graph, in SVG units.
const (
	nodeWidth, nodeHeight = 176, 52
	gapAcross, gapDown    = 56, 20
	graphMargin           = 8
	// maxDrawn is how many steps are drawn; a larger plan is listed.
	maxDrawn = 120
	// maxLabel is how many characters of a tool's name fit into a node.
	maxLabel = 19
)

// graph is a DAG laid out: in columns from left to right, each step to the right of all that it waits for.
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []edge
}

type node struct {
	X, Y          int
	ID, Tool      string
	Label         string // the tool's name, clipped
	Status, Shape string
}

type edge struct {
	Path string
	Done bool // what it comes from is done
}

// draw lays a DAG out. It is nil for one that is empty or too large.
func draw(d plan.DAG) *graph {
	if len(d) == 0 || len(d) > maxDrawn {
		return nil
	}
	at := map[string]int{}
	for i, s := range d {
		at[s.ID] = i
	}
	columns := arrange(d, at)
	g := &graph{Nodes: make([]node, len(d))}
	tallest := 0
	for _, c := range columns {
		tallest = max(tallest, len(c))
	}
	g.Width = 2*graphMargin + len(columns)*nodeWidth + (len(columns)-1)*gapAcross
	g.Height = 2*graphMargin + tallest*nodeHeight + (tallest-1)*gapDown
	for x, column := range columns {
		top := (g.Height - len(column)*nodeHeight - (len(column)-1)*gapDown) / 2
		for y, i := range column {
			g.Nodes[i] = node{
				X: graphMargin + x*(nodeWidth+gapAcross), Y: top + y*(nodeHeight+gapDown), ID: d[i].ID, Tool: d[i].Tool,
				Label: clipRunes(d[i].Tool, maxLabel), Status: string(d[i].Status), Shape: shape(d[i].Status),
			}
		}
	}
	for i, s := range d {
		for _, id := range s.After {
			if j, ok := at[id]; ok && j != i {
				g.Edges = append(g.Edges, curve(g.Nodes[j], g.Nodes[i]))
			}
		}
	}
	return g
}

func curve(from, to node) edge {
	x1, y1 := from.X+nodeWidth, from.Y+nodeHeight/2
	x2, y2 := to.X-7, to.Y+nodeHeight/2 // the arrow's head is drawn in front of the line
	bend := max((x2-x1)/2, 16)
	return edge{
		Path: fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2),
		Done: from.Status == string(plan.Done),
	}
}

// arrange puts the steps into columns by the longest way to them, and orders each column by where what it waits for
// stands, which is the barycentre method of Sugiyama, Tagawa and Toda (1981) in one pass from left to right.
func arrange(d plan.DAG, at map[string]int) [][]int {
	depth := make([]int, len(d))
	for range d { // a valid plan settles in as many rounds as it is deep
		moved := false
		for i, s := range d {
			for _, id := range s.After {
				if j, ok := at[id]; ok && depth[i] <= depth[j] && depth[j]+1 < len(d) {
					depth[i], moved = depth[j]+1, true
				}
			}
		}
		if !moved {
			break
		}
	}
	columns := make([][]int, slices.Max(depth)+1)
	for i := range d {
		columns[depth[i]] = append(columns[depth[i]], i)
	}
	columns = slices.DeleteFunc(columns, func(c []int) bool { return len(c) == 0 })
	place := make([]float64, len(d))
	for _, column := range columns {
		for _, i := range column {
			place[i] = barycentre(d[i], at, place)
		}
		slices.SortStableFunc(column, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
		for y, i := range column {
			place[i] = float64(y) - float64(len(column)-1)/2
		}
	}
	return columns
}

// barycentre is the middle of what a step waits for.
func barycentre(s plan.DAGStep, at map[string]int, place []float64) float64 {
	sum, n := 0.0, 0
	for _, id := range s.After {
		if j, ok := at[id]; ok {
			sum, n = sum+place[j], n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

func clipRunes(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
