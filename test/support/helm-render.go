// Renders a chart as Helm 3 does, with the parts that Helm itself is made of: text/template, sprig and sigs.k8s.io/yaml. What it
// adds to the templates is what Helm adds, for the functions that charts use: include, tpl, required, lookup, toYaml and its kin.
//
// It reads a JSON request on stdin (see the type request) and writes a JSON object on stdout: the text of every rendered template
// by its path in the chart. Errors go to stderr, with exit code 1.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type request struct {
	// The folder of the chart.
	Chart string
	// Values on top of the chart's own, later ones last.
	Values []map[string]interface{}
	// The release.
	Name, Namespace string
	// What lookup finds: "v1/Secret/namespace/name" → the object.
	Cluster map[string]map[string]interface{}
}

// The names that templates know, as Helm spells them.
type metadata struct {
	Name, Version, AppVersion, Description, Type, KubeVersion string
}

type files struct{ folder string }

// Get is .Files.Get: the text of a file of the chart, empty when there is none.
func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.folder, name))
	if err != nil {
		return ""
	}
	return string(text)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var req request
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		return err
	}
	var chart metadata
	var values map[string]interface{}
	if err := readYaml(filepath.Join(req.Chart, "Chart.yaml"), &chart); err != nil {
		return err
	}
	if err := readYaml(filepath.Join(req.Chart, "values.yaml"), &values); err != nil {
		return err
	}
	for _, more := range req.Values {
		merge(values, more)
	}
	root := template.New("root").Option("missingkey=zero")
	root.Funcs(functions(root, req.Cluster))
	paths, err := filepath.Glob(filepath.Join(req.Chart, "templates", "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := root.New(filepath.Base(path)).Parse(string(text)); err != nil {
			return err
		}
	}
	rendered := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		text, err := execute(root, name, map[string]interface{}{
			"Values": values,
			"Chart":  chart,
			"Files":  files{req.Chart},
			"Release": map[string]interface{}{
				"Name": req.Name, "Namespace": req.Namespace, "Service": "Helm", "Revision": 1,
				"IsInstall": len(req.Cluster) == 0, "IsUpgrade": len(req.Cluster) > 0,
			},
			"Template": map[string]interface{}{"Name": chart.Name + "/templates/" + name, "BasePath": chart.Name + "/templates"},
		})
		if err != nil {
			return err
		}
		rendered["templates/"+name] = text
	}
	return json.NewEncoder(os.Stdout).Encode(rendered)
}

func readYaml(path string, into interface{}) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// Maps are merged, everything else is replaced, and null takes a key away.
func merge(values, more map[string]interface{}) {
	for key, value := range more {
		old, was := values[key].(map[string]interface{})
		new, is := value.(map[string]interface{})
		switch {
		case value == nil:
			delete(values, key)
		case was && is:
			merge(old, new)
		default:
			values[key] = value
		}
	}
}

// Helm shows what is missing as nothing.
func execute(root *template.Template, name string, data interface{}) (string, error) {
	var text strings.Builder
	err := root.ExecuteTemplate(&text, name, data)
	return strings.ReplaceAll(text.String(), "<no value>", ""), err
}

func functions(root *template.Template, cluster map[string]map[string]interface{}) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	all["include"] = func(name string, data interface{}) (string, error) { return execute(root, name, data) }
	all["tpl"] = func(text string, data interface{}) (string, error) {
		copy, err := root.Clone()
		if err != nil {
			return "", err
		}
		if _, err := copy.New("tpl").Parse(text); err != nil {
			return "", err
		}
		return execute(copy, "tpl", data)
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || isText && text == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	all["lookup"] = func(version, kind, namespace, name string) map[string]interface{} {
		if found := cluster[strings.Join([]string{version, kind, namespace, name}, "/")]; found != nil {
			return found
		}
		return map[string]interface{}{}
	}
	all["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	all["fromYaml"] = func(text string) map[string]interface{} {
		value := map[string]interface{}{}
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			value["Error"] = err.Error()
		}
		return value
	}
	return all
}
