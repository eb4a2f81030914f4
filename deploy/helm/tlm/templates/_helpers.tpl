{{/* The name of all objects: the release, or RELEASE-tlm; 50 bytes leave room for suffixes. */}}
{{- define "tlm.name" -}}
{{- if contains "tlm" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-tlm" (.Release.Name | trunc 46 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "tlm.selector" -}}
app.kubernetes.io/name: tlm
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tlm.labels" -}}
{{ include "tlm.selector" . }}
app.kubernetes.io/part-of: tlm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tlm.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "tlm.name" .) }}
{{- end -}}

{{- define "tlm.image" -}}
{{- $name := required "image.repository is empty" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default (ternary "cuda" "cpu" .Values.gpu.enabled) }}
{{- end -}}
{{- end -}}

{{/* The server refuses to listen on a network address without TLS unless it is told to. */}}
{{- define "tlm.check" -}}
{{- if and .Values.tls.enabled .Values.mesh.enabled -}}
{{- fail "tls.enabled and mesh.enabled exclude each other" -}}
{{- end -}}
{{- if not (or .Values.tls.enabled .Values.mesh.enabled) -}}
{{- fail "without tls.enabled, mesh.enabled must say that a mesh encrypts" -}}
{{- end -}}
{{- range $flag := list "model" "host" "port" "admin_port" "metrics_port" "metrics_host" "metrics_insecure" "insecure" "tls_cert" "tls_key" "tls_client_ca" "api_keys" "withdrawal_grace" "drain_timeout" "max_connection_age" -}}
{{- if hasKey $.Values.flags $flag -}}
{{- fail (printf "flags.%s is set by the chart from values of its own" $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of (list CONTEXT PATH). Kubernetes' gRPC probes do not support TLS. */}}
{{- define "tlm.probe" -}}
{{- if (index . 0).Values.tls.enabled -}}
httpGet:
  path: {{ index . 1 }}
  port: metrics
{{- else -}}
grpc:
  port: {{ (index . 0).Values.ports.data }}
{{- end -}}
{{- end -}}

{{- define "tlm.meshPort" -}}
{{- if and .Values.mesh.enabled .Values.mesh.port -}}
- protocol: TCP
  port: {{ .Values.mesh.port }}
{{- end -}}
{{- end -}}
