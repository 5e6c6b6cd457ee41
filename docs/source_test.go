package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// What can't be had from a running program is read from its source: programs can't be imported, and Go does not list the
// constants of a type.

// declarations calls each with every top-level declaration of a package, tests left out.
func declarations(t *testing.T, dir string, each func(ast.Decl)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			each(d)
		}
	}
}

// returned maps the receivers of a method to the string literal that it returns.
func returned(t *testing.T, dir, method string) map[string]string {
	t.Helper()
	found := map[string]string{}
	declarations(t, dir, func(d ast.Decl) {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != method || len(f.Body.List) != 1 {
			return
		}
		receiver, named := f.Recv.List[0].Type.(*ast.Ident)
		result, returns := f.Body.List[0].(*ast.ReturnStmt)
		if !named || !returns || len(result.Results) != 1 {
			return
		}
		if text, ok := literal(result.Results[0]); ok {
			found[receiver.Name] = text
		}
	})
	return found
}

// constants returns the values of the text constants whose names begin with prefix.
func constants(t *testing.T, dir, prefix string) []string {
	t.Helper()
	return values(t, dir, func(s *ast.ValueSpec) bool { return strings.HasPrefix(s.Names[0].Name, prefix) })
}

// typed returns the values of the text constants of a type.
func typed(t *testing.T, dir, kind string) []string {
	t.Helper()
	return values(t, dir, func(s *ast.ValueSpec) bool {
		name, ok := s.Type.(*ast.Ident)
		return ok && name.Name == kind
	})
}

func values(t *testing.T, dir string, wanted func(*ast.ValueSpec) bool) (out []string) {
	t.Helper()
	declarations(t, dir, func(d ast.Decl) {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			return
		}
		for _, spec := range g.Specs {
			s, ok := spec.(*ast.ValueSpec)
			if !ok || len(s.Names) != 1 || len(s.Values) != 1 || !wanted(s) {
				continue
			}
			if text, ok := literal(s.Values[0]); ok {
				out = append(out, text)
			}
		}
	})
	return out
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// structs returns the struct types of a package whose names end in suffix.
func structs(t *testing.T, dir, suffix string) map[string]*ast.StructType {
	t.Helper()
	found := map[string]*ast.StructType{}
	declarations(t, dir, func(d ast.Decl) {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			return
		}
		for _, spec := range g.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && strings.HasSuffix(s.Name.Name, suffix) {
				if fields, ok := s.Type.(*ast.StructType); ok {
					found[s.Name.Name] = fields
				}
			}
		}
	})
	return found
}

// flagField is a flag as its struct field says it.
type flagField struct{ name, env, standard string }

// flagsOf returns the flags that a struct declares in the tags that kong reads. Arguments and commands are none.
func flagsOf(t *testing.T, dir, name string) (flags []flagField) {
	t.Helper()
	fields, ok := structs(t, dir, name)[name]
	if !ok {
		t.Fatalf("%s has no struct %s", dir, name)
	}
	for _, f := range fields.Fields.List {
		if f.Tag == nil || len(f.Names) == 0 {
			continue
		}
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			t.Fatal(err)
		}
		tag := reflect.StructTag(text)
		_, argument := tag.Lookup("arg")
		_, command := tag.Lookup("cmd")
		if argument || command {
			continue
		}
		flag := flagField{name: tag.Get("name"), env: tag.Get("env"), standard: tag.Get("default")}
		if flag.name == "" {
			flag.name = dashed(f.Names[0].Name)
		}
		flags = append(flags, flag)
	}
	return flags
}

// dashed turns MaxSteps into max-steps, as kong does.
func dashed(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
