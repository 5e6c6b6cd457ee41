package loop

import (
	"reflect"
	"testing"
)

// A toolbox is made anew whatever changed of a tool.
func TestSameToolSeesEveryField(t *testing.T) {
	same := func(change func(reflect.Value)) bool {
		var one, other ToolSpec
		change(reflect.ValueOf(&other).Elem())
		return sameTool(one, other)
	}
	if !same(func(reflect.Value) {}) {
		t.Error("a tool is not the same as itself")
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[ToolSpec]()) {
		changed := same(func(of reflect.Value) {
			switch f := of.FieldByIndex(field.Index); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(1)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			case reflect.Func:
				f.Set(reflect.MakeFunc(f.Type(), nil))
			default:
				t.Fatalf("%s is of a kind that this test does not know", field.Name)
			}
		})
		if changed != (field.Type.Kind() == reflect.Func) {
			t.Errorf("with another %s the two are the same: %v", field.Name, changed)
		}
	}
}
