package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"reflect"
	"strconv"
	"strings"
)

// comments is what the source says of its types: a sentence for each field, and the values of each type of text that has
// named constants.
type comments struct {
	fields map[string]string // package.Type.Field
	values map[string][]any  // package.Type, in the order of the source
}

// readComments reads the Go files of some packages below a folder.
func readComments(source fs.FS, packages ...string) (comments, error) {
	c := comments{fields: map[string]string{}, values: map[string][]any{}}
	for _, name := range packages {
		files, err := fs.Glob(source, path.Join(name, "*.go"))
		if err != nil || len(files) == 0 {
			return c, fmt.Errorf("read the source of %s: %d files, %w", name, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := fs.ReadFile(source, file)
			if err != nil {
				return c, err
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return c, fmt.Errorf("read %s: %w", file, err)
			}
			for _, d := range tree.Decls {
				if general, ok := d.(*ast.GenDecl); ok {
					c.add(name, general)
				}
			}
		}
	}
	return c, nil
}

func (c comments) add(pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			c.addType(pkg, s)
		case *ast.ValueSpec:
			c.addValue(pkg, s)
		}
	}
}

func (c comments) addType(pkg string, s *ast.TypeSpec) {
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range fields.Fields.List {
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		for _, name := range f.Names {
			if text != "" {
				c.fields[pkg+"."+s.Name.Name+"."+name.Name] = strings.Join(strings.Fields(text), " ")
			}
		}
	}
}

// addValue takes a constant that is declared with its type: EffectRead Effect = "read".
func (c comments) addValue(pkg string, s *ast.ValueSpec) {
	of, named := s.Type.(*ast.Ident)
	if !named || len(s.Values) != 1 {
		return
	}
	literal, ok := s.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	if value, err := strconv.Unquote(literal.Value); err == nil {
		key := pkg + "." + of.Name
		c.values[key] = append(c.values[key], value)
	}
}

func key(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

func (c comments) field(t reflect.Type, name string) string { return c.fields[key(t)+"."+name] }

// enum are the values that a type of text has; nil where it is open.
func (c comments) enum(t reflect.Type) []any { return c.values[key(t)] }
