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

{{- /* Most replicas that there may be; each has its paths in the ingress. */ -}}
{{- define "sightline.replicasMax" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas }}
{{- end }}

{{- /* Annotations as in docs/PROXY.md: uploads, event streams and long responses. */ -}}
{{- define "sightline.proxy" -}}
nginx.ingress.kubernetes.io/proxy-body-size: 201m
nginx.ingress.kubernetes.io/proxy-request-buffering: "off"
nginx.ingress.kubernetes.io/proxy-buffering: "off"
nginx.ingress.kubernetes.io/proxy-read-timeout: "43200"
nginx.ingress.kubernetes.io/use-regex: "true"
{{- end }}

{{- define "sightline.rule" -}}
{{- with .Values.ingress.className }}
ingressClassName: {{ . }}
{{- end }}
{{- with .Values.ingress.tlsSecret }}
tls:
  - hosts: [{{ $.Values.ingress.host }}]
    secretName: {{ . }}
{{- end }}
{{- end }}
