{{- define "baltra.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{/* Labels of an object; with a component: (list . "registry"). */}}
{{- define "baltra.labels" -}}
app.kubernetes.io/name: baltra
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{- define "baltra.selector" -}}
app.kubernetes.io/name: baltra
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "baltra.image" -}}
{{- $root := index . 0 }}
{{- $image := $root.Values.image }}
{{- $daemon := index . 1 }}
{{- $name := ternary (printf "%s-%s" $image.repository $daemon) $image.repository $image.perDaemon }}
{{- $whole := printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) }}
{{- if eq $daemon "manager" }}{{ $whole = $root.Values.node.managerImage | default $whole }}{{ end }}
image: {{ $whole | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "baltra.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "baltra.registry" -}}
http://{{ .Values.registry.clusterIP | default (printf "%s-registry.%s.svc" (include "baltra.name" .) .Release.Namespace) }}:{{ .Values.registry.port }}
{{- end }}

{{- define "baltra.dra" -}}
{{- if or (eq (toString .Values.dra) "true") (and (eq (toString .Values.dra) "auto") (.Capabilities.APIVersions.Has "resource.k8s.io/v1")) }}yes{{ end }}
{{- end }}

{{/* For all daemons except the node's. */}}
{{- define "baltra.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "baltra.contained" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Annotations of a Pod whose metrics are at a port: (list . port). */}}
{{- define "baltra.scrape" -}}
{{- if not (index . 0).Values.monitoring.serviceMonitors }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 1 | quote }}
{{- end }}
{{- end }}

{{/* A token of the tokens' Secret in the environment: (list . VARIABLE role). */}}
{{- define "baltra.token" -}}
- name: {{ index . 1 }}
  valueFrom: {secretKeyRef: {name: {{ include "baltra.name" (index . 0) }}-tokens, key: {{ index . 2 }}}}
{{- end }}

{{/* The collector for a daemon's spans, in the environment. */}}
{{- define "baltra.traces" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
- {name: OTEL_EXPORTER_OTLP_PROTOCOL, value: {{ .protocol | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: {{ .sampler | quote }}}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .samplerArgument | quote }}}
{{- end }}
{{- end }}
{{- end }}
