{{/*
What the names of all objects start with. Cut so that "-webhook" still fits into the 63 characters of a
Service's name.
*/}}
{{- define "stowplan.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Deployment and Service of the webhook. */}}
{{- define "stowplan.webhook" -}}
{{ include "stowplan.fullname" . }}-webhook
{{- end -}}

{{/* Labels of every object. */}}
{{- define "stowplan.labels" -}}
{{ include "stowplan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What never changes over a release's life, since a Deployment's selector cannot. */}}
{{- define "stowplan.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of the webhook's pods. */}}
{{- define "stowplan.webhook.selectorLabels" -}}
{{ include "stowplan.selectorLabels" . }}
app.kubernetes.io/component: webhook
{{- end -}}

{{- define "stowplan.webhook.labels" -}}
{{ include "stowplan.labels" . }}
app.kubernetes.io/component: webhook
{{- end -}}

{{/* Deployment, service account and roles of the controller. */}}
{{- define "stowplan.controller" -}}
{{ include "stowplan.fullname" . }}-controller
{{- end -}}

{{/* Where the controller runs: "deployment", "sidecar" or, empty, nowhere. */}}
{{- define "stowplan.controller.mode" -}}
{{- if .Values.controller.enabled -}}
{{- ternary "sidecar" "deployment" .Values.controller.sidecar -}}
{{- end -}}
{{- end -}}

{{/* The service account that holds the controller's rights. */}}
{{- define "stowplan.controller.account" -}}
{{- if eq (include "stowplan.controller.mode" .) "sidecar" -}}
{{ include "stowplan.fullname" . }}
{{- else -}}
{{ include "stowplan.controller" . }}
{{- end -}}
{{- end -}}

{{/* Labels of the controller's own pods. */}}
{{- define "stowplan.controller.selectorLabels" -}}
{{ include "stowplan.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "stowplan.controller.labels" -}}
{{ include "stowplan.labels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "stowplan.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- with .Values.image.digest -}}
{{ $.Values.image.repository }}@{{ . }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{/* How the API server calls the webhook. Takes: root, path. */}}
{{- define "stowplan.webhook.client" -}}
clientConfig:
  # By Service, not by URL: the API server then checks the certificate against <service>.<namespace>.svc.
  service:
    name: {{ include "stowplan.webhook" .root }}
    namespace: {{ .root.Release.Namespace | quote }}
    path: {{ .path }}
    port: {{ .root.Values.webhook.service.port }}
  {{- /* Absent with cert-manager, so that an upgrade does not take away what was injected. */}}
  {{- with .root.Values.tls.caBundle }}
  caBundle: {{ . | quote }}
  {{- end }}
{{- end -}}
