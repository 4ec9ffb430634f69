// Renders a chart like Helm 3, with the libraries of Helm: text/template, sprig and sigs.k8s.io/yaml. It adds the functions of Helm
// that the charts use: include, tpl, required, lookup, toYaml and fromYaml.
//
// It reads a JSON request (type request) on stdin, and writes a JSON object to stdout: the text of each rendered template by its
// path in the chart. After an error, it writes the error to stderr and exits with code 1.
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
	// Values that override the chart's values. A later element overrides an earlier one.
	Values []map[string]interface{}
	// The release.
	Name, Namespace string
	// Objects for lookup, by "v1/Secret/namespace/name".
	Cluster map[string]map[string]interface{}
}

// Fields of .Chart, with the names of Helm.
type metadata struct {
	Name, Version, AppVersion, Description, Type, KubeVersion string
}

type files struct{ folder string }

// Get is .Files.Get. It returns the text of a file of the chart, or an empty text if there is no such file.
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

// merge merges maps, replaces other values, and deletes a key whose new value is null.
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

// execute renders missing values as empty texts, like Helm.
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
