{{- /* Pods of a StatefulSet have this name and a hash in a label of at most 63 characters. */ -}}
{{- define "sightline.name" -}}
{{- contains "sightline" .Release.Name | ternary .Release.Name (printf "%s-sightline" .Release.Name) | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "sightline.selector" -}}
app.kubernetes.io/name: sightline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sightline.labels" -}}
{{ include "sightline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sightline.secret" -}}
{{ .Values.auth.existingSecret | default (include "sightline.name" .) }}
{{- end }}
