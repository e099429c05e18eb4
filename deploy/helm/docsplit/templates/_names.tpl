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
{{- if and .Values.redis.deploy (not .Values.redis.existingSecret) (not .Values.settings.redis_url) (not (has "DOCSPLIT_REDIS_URL" (include "docsplit.given" . | fromJsonArray))) }}true{{ end }}
{{- end }}

{{- define "docsplit.secured" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* names of the variables in env, as JSON */}}
{{- define "docsplit.given" -}}
{{- $names := list }}
{{- range .Values.env }}{{ $names = append $names .name }}{{ end }}
{{- toJson $names }}
{{- end }}

{{- /* the chart's own variables, as a list */}}
{{- define "docsplit.variables" -}}
{{- range $name, $value := .Values.settings }}
- name: DOCSPLIT_{{ upper $name }}
  value: {{ if kindIs "slice" $value }}{{ join "," $value | quote }}{{ else if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ int64 $value | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
# a setting above counts more than the chart's own value
{{- if and .Values.gpu.enabled (not .Values.settings.engine) }}
# refuse to start rather than silently compute on the processor
- {name: DOCSPLIT_ENGINE, value: onnx-cuda}
{{- end }}
{{- if and .Values.keys.existingSecret (not .Values.settings.keys_file) }}
- {name: DOCSPLIT_KEYS_FILE, value: /keys/keys.toml}
{{- end }}
{{- if .Values.settings.redis_url }}
{{- else if .Values.redis.existingSecret }}
- name: DOCSPLIT_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret }}, key: url}}
{{- else if .Values.redis.deploy }}
- {name: DOCSPLIT_REDIS_URL, value: "redis://{{ include "docsplit.name" . }}-redis:6379/0"}
{{- end }}
{{- if and .Values.redis.cacheSecret (not .Values.settings.cache_secret) }}
- name: DOCSPLIT_CACHE_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.cacheSecret }}, key: secret}}
{{- end }}
{{- if and .Values.bundle.existingClaim (not .Values.settings.bundle) }}
- {name: DOCSPLIT_BUNDLE, value: /bundle}
{{- end }}
{{- if and .Values.index.s3.uri (not .Values.settings.index_path) }}
- {name: DOCSPLIT_INDEX_PATH, value: {{ .Values.index.s3.uri | quote }}}
{{- end }}
{{- with .Values.index.s3 }}
{{- if .uri }}
{{- with .region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .endpoint }}
- {name: AWS_ENDPOINT, value: {{ . | quote }}}
{{- if hasPrefix "http://" . }}
- {name: AWS_ALLOW_HTTP, value: "true"}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
