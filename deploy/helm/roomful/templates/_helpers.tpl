{{- define "roomful.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "roomful.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "roomful.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "roomful.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of a selector, which never change. Takes a list of the root and the component. */}}
{{- define "roomful.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "roomful.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "roomful.labels" -}}
{{- $root := index . 0 -}}
{{ include "roomful.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: roomful
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "roomful.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "roomful.secretName" -}}
{{- default (printf "%s-secrets" (include "roomful.fullname" .)) .Values.secrets.existingSecret -}}
{{- end -}}

{{- define "roomful.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "roomful.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Common parts of the pods of both planes, without containers. Takes a list of the root, the component and its values. */}}
{{- define "roomful.pod" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ include "roomful.serviceAccountName" $root }}
automountServiceAccountToken: false
# A Service named control would set CONTROL_PORT=tcp://… in every pod.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "roomful.selector" (list $root $component) | nindent 8 }}
  {{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Common parts of the containers of both planes. */}}
{{- define "roomful.container" -}}
image: {{ include "roomful.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{/* The environment of both planes. */}}
{{- define "roomful.env" -}}
- name: REDIS_URL_FILE
  value: /etc/roomful/secrets/redis-url
- name: INTERNAL_TOKEN_FILE
  value: /etc/roomful/secrets/internal-token
- name: NOTIFY_SECRET_FILE
  value: /etc/roomful/secrets/notify-secret
- name: KEY_PREFIX
  value: {{ .Values.keyPrefix | quote }}
- name: LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: REQUIRE_KEY_ID
  value: {{ ternary "1" "0" .Values.requireKeyId | quote }}
{{- end -}}

{{/* Additional variables, from a map. Numbers in YAML are floats: 1048576 must not become 1.048576e+06. */}}
{{- define "roomful.moreEnv" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ ternary (int64 $value) $value (and (kindIs "float64" $value) (eq (floor $value) $value)) | toString | quote }}
{{- end }}
{{- end -}}
