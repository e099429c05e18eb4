{{- define "docsplit.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "docsplit.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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

{{- /* the URL of the store */}}
{{- define "docsplit.store" -}}
{{- with .Values.index.s3 }}{{ if .endpoint }}{{ trimSuffix "/" .endpoint }}{{ else if .cache.gigabytes }}https://s3.{{ required "index.s3.region: the cache needs it" .region }}.amazonaws.com{{ end }}{{ end }}
{{- end }}

{{- /* the URL that replicas use: they speak plainly to the cache, and the cache with TLS to the store */}}
{{- define "docsplit.endpoint" -}}
{{- $store := include "docsplit.store" . }}
{{- if .Values.index.s3.cache.gigabytes }}{{ $store | replace "https://" "http://" }}{{ else }}{{ $store }}{{ end }}
{{- end }}

{{- /* the shipped configuration of the cache, for this store and size */}}
{{- define "docsplit.cache" -}}
{{- $url := urlParse (include "docsplit.store" .) }}
{{- $host := $url.host }}
{{- if not (regexMatch ":[0-9]+$" $host) }}{{ $host = printf "%s:%s" $host (ternary "80" "443" (eq $url.scheme "http")) }}{{ end }}
{{- .Files.Get "bucket-cache.conf"
  | replace "server s3.eu-central-1.amazonaws.com:443" (printf "server %s" $host)
  | replace "https://store" (printf "%s://store" $url.scheme)
  | replace "resolver 127.0.0.53" (printf "resolver %s" .Values.index.s3.cache.resolver)
  | replace "max_size=20g" (printf "max_size=%dg" (int .Values.index.s3.cache.gigabytes)) }}
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
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret | quote }}, key: url}}
{{- else if .Values.redis.deploy }}
- {name: DOCSPLIT_REDIS_URL, value: "redis://{{ include "docsplit.name" . }}-redis:6379/0"}
{{- end }}
{{- if and .Values.redis.cacheSecret (not .Values.settings.cache_secret) }}
- name: DOCSPLIT_CACHE_SECRET
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.cacheSecret | quote }}, key: secret}}
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
{{- with include "docsplit.endpoint" $ }}
- {name: AWS_ENDPOINT, value: {{ . | quote }}}
{{- if hasPrefix "http://" . }}
- {name: AWS_ALLOW_HTTP, value: "true"}
{{- end }}
{{- end }}
{{- if .cache.gigabytes }}
- {name: AWS_PROXY_URL, value: "http://127.0.0.1:3128"}
# where roles become credentials
- {name: AWS_PROXY_EXCLUDES, value: "sts.amazonaws.com,sts.{{ .region }}.amazonaws.com,169.254.0.0/16"}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
