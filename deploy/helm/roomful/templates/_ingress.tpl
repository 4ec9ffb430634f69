{{/* An Ingress for the Service of a component. Takes a list of the root, the component, its ingress values and the name of the port. */}}
{{- define "roomful.ingress" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
{{- $name := printf "%s-%s" (include "roomful.fullname" $root) $component -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "roomful.labels" (list $root $component) | nindent 4 }}
  {{- with $values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $values.className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- if $values.tlsSecret }}
  tls:
    - hosts: [{{ $values.host | quote }}]
      secretName: {{ $values.tlsSecret }}
  {{- end }}
  rules:
    - host: {{ required (printf "%s.ingress.enabled needs %s.ingress.host, such as play.example.com" $component $component) $values.host | quote }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {{ $name }}
                port: { name: {{ index . 3 }} }
{{- end -}}
