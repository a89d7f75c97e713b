{{/*
The values that were added since the oldest chart from which `helm upgrade --reuse-values` works, with their
defaults: Helm then passes the values of the installed chart, and none of the defaults in values.yaml.
tests/offline/chart/upgrade.rs compares them with values.yaml.
*/}}
{{- define "stowplan.newValues" -}}
nameOverride: ""
commonLabels: {}
image.registry: ""
extraEnv: []
listenAddress: 0.0.0.0
lostNodeSeconds: 60
podSecurityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containerSecurityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
serviceAccount.create: true
serviceAccount.name: ""
serviceAccount.annotations: {}
webhook.numaPolicy.enabled: true
webhook.keyPolicy.enabled: true
webhook.labels: {}
webhook.annotations: {}
webhook.port: 8443
webhook.adminPort: 8080
webhook.hostNetwork: false
webhook.dnsPolicy: ""
webhook.extraArgs: []
webhook.service.annotations: {}
webhook.service.ipFamilyPolicy: ""
webhook.service.ipFamilies: []
controller.rbac.jobs: true
controller.rbac.katalyst: true
controller.placeholderPriorityClass.create: true
controller.serviceAccount.create: true
controller.serviceAccount.name: ""
controller.serviceAccount.annotations: {}
controller.extraArgs: []
tls.mode: ""
tls.self.caLifetime: 87600h
tls.self.leafLifetime: 720h
tls.self.overlap: 1h
tls.certManager.issuerRef: {}
metrics.serviceMonitor.enabled: false
metrics.serviceMonitor.labels: {}
metrics.prometheusRule.enabled: false
metrics.prometheusRule.labels: {}
metrics.prometheusRule.runbookURL: ""
metrics.dashboard.enabled: false
metrics.dashboard.labels:
  grafana_dashboard: "1"
metrics.dashboard.annotations: {}
{{- end -}}

{{/* Adds those that are missing. A map of the user's own (labels, security contexts) is taken as it is. */}}
{{- define "stowplan.addNewValues" -}}
{{- range $path, $default := include "stowplan.newValues" . | fromYaml -}}
  {{- $keys := splitList "." $path -}}
  {{- $parent := $.Values -}}
  {{- range $key := initial $keys -}}
    {{- if not (kindIs "map" (get $parent $key)) }}{{ $_ := set $parent $key dict }}{{ end -}}
    {{- $parent = get $parent $key -}}
  {{- end -}}
  {{- $key := last $keys -}}
  {{- if or (not (hasKey $parent $key)) (kindIs "invalid" (get $parent $key)) -}}
    {{- $_ := set $parent $key $default -}}
  {{- end -}}
{{- end -}}
{{- end -}}
