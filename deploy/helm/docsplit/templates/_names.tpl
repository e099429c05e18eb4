{{- define "docsplit.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "docsplit.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "docsplit.labels" -}}
{{ include "docsplit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "docsplit.volume" -}}
{{- if .Values.index.volume.existingClaim }}{{ .Values.index.volume.existingClaim }}{{ else if .Values.index.volume.size }}{{ include "docsplit.name" . }}-index{{ end }}
{{- end }}

{{- define "docsplit.ownRedis" -}}
{{- if and .Values.redis.deploy (not .Values.redis.existingSecret) (not .Values.settings.redis_url) }}true{{ end }}
{{- end }}

{{- define "docsplit.secured" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
