{{- define "sightline.name" -}}
{{- if contains "sightline" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-sightline{{ end }}
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
