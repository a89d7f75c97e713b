{{/* Whether a request is for one of the Secrets with the CA and the webhook's certificate. */}}
{{- define "stowplan.policy.certificates" -}}
request.namespace == '{{ .Release.Namespace }}' && (object == null ? oldObject : object).metadata.name in ['{{ include "stowplan.tls.caSecret" . }}', '{{ include "stowplan.tls.secret" . }}']
{{- end -}}
