{{/*
Values that are well-formed one by one (values.schema.json checks that) and cannot work together.
Each sentence says what to do: it is all that the user of `helm install` gets to see.
*/}}
{{- define "stowplan.validate" -}}
{{- if not .Values.image.repository -}}
  {{- fail (printf "image.repository is empty, so no node could start stowplan: set it to where your registry keeps the image, without the tag (`cargo testbed image` builds one; for an image that was imported on the nodes, set it to the name that it has there, %s)" .Chart.Name) -}}
{{- end -}}
{{- range $key, $_ := .Values.commonLabels -}}
  {{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
  {{- if or (has $key $own) (hasPrefix "stowplan.dev/" $key) (hasPrefix "rbac.authorization.k8s.io/" $key) -}}
    {{- fail (printf "commonLabels has %s, which the chart sets itself or which would change rights: take another key" $key) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if has .name (list "POD_NAME" "STOWPLAN_LOG") -}}
    {{- fail (printf "extraEnv has %s, which the chart sets itself: remove it (logLevel is the log filter)" .name) -}}
  {{- end -}}
{{- end -}}
{{- $flags := dict
  "webhook" (list "--listen" "--admin-listen" "--tls-secret" "--tls-cert" "--tls-key" "--client-ca" "--namespace" "--service" "--policy" "--policy-config-map" "--shutdown-delay")
  "controller" (list "--namespace" "--policy" "--policy-config-map" "--admin-listen" "--image" "--identity" "--tls-secret" "--ca-secret" "--service" "--webhook-configuration" "--ca-lifetime" "--leaf-lifetime" "--ca-overlap")
-}}
{{- range $name, $own := $flags -}}
  {{- range (get $.Values $name).extraArgs -}}
    {{- if has (splitList "=" . | first) $own -}}
      {{- fail (printf "%s.extraArgs has %s, which the chart sets itself: remove it, and set the value that it comes from" $name .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq (int .Values.webhook.port) (int .Values.webhook.adminPort) -}}
  {{- fail (printf "webhook.port and webhook.adminPort are both %d: set different ones" (int .Values.webhook.port)) -}}
{{- end -}}
{{- if eq (include "stowplan.controller.mode" .) "sidecar" -}}
  {{- if has 8081 (list (int .Values.webhook.port) (int .Values.webhook.adminPort)) -}}
    {{- fail "webhook.port or webhook.adminPort is 8081, on which the controller listens in the same pods: set another one, or controller.sidecar to false" -}}
  {{- end -}}
{{- end -}}
{{- range $name, $account := dict "serviceAccount" .Values.serviceAccount "controller.serviceAccount" .Values.controller.serviceAccount -}}
  {{- if not (or $account.create $account.name) -}}
    {{- fail (printf "%s.create is false and %s.name is empty: name the service account that exists, or set create to true" $name $name) -}}
  {{- end -}}
{{- end -}}
{{- if eq (include "stowplan.controller.mode" .) "deployment" -}}
  {{- $account := include "stowplan.account" . -}}
  {{- if eq $account (include "stowplan.controller.account" .) -}}
    {{- fail (printf "the webhook and the controller have the same service account, %s, so the webhook, which can be reached over the network, would have the controller's rights: name different ones, or set controller.sidecar to true" $account) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
  {{- fail "metrics.podMonitor.enabled and metrics.serviceMonitor.enabled are both true, so Prometheus would read each pod twice and count two leaders: enable one of them" -}}
{{- end -}}
{{- if and .Values.controller.sidecar (not .Values.controller.enabled) -}}
  {{- fail "controller.sidecar is true and controller.enabled is false, so there is no controller to run beside the webhook: set enabled to true, or sidecar to false" -}}
{{- end -}}
{{- with .Values.webhook.matchConditions -}}
  {{- if eq (toString $.Values.policy.repair) "recreatePending" -}}
    {{- fail (printf "policy.repair is recreatePending and webhook.matchConditions has conditions of your own (%s), so stowplan cannot know which pods they keep from the webhook, and would delete such pods again and again: set repair to report, or exclude by webhook.excludedNamespaces and the label stowplan.dev/ignore instead of conditions" (include "stowplan.matchConditions" $ | fromJsonArray | join ", ")) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.controller.enabled (not .Values.controller.rbac.coscheduling) (include "stowplan.coschedules" .) -}}
  {{- fail "controller.rbac.coscheduling is false and the policy enables coscheduling, so members of groups would wait for placeholders that cannot be created: set policy.coschedule.enabled to false too" -}}
{{- end -}}
{{- if and .Values.controller.enabled (not .Values.controller.rbac.mpi) (include "stowplan.mpi" .) -}}
  {{- fail "controller.rbac.mpi is false and the policy enables MPI clusters, so launchers would wait for objects and for workers for ever: set policy.mpi.enabled to false too" -}}
{{- end -}}
{{- if and .Values.controller.enabled (not .Values.controller.rbac.jobs) (include "stowplan.streams" .) -}}
  {{- fail "controller.rbac.jobs is false and the policy enables Streams, so pods of StreamsJobs would wait behind their gate for ever: set policy.streams.enabled to false too" -}}
{{- end -}}
{{- $katalyst := .Values.policy.katalyst | default dict -}}
{{- if eq (toString $katalyst.mode) "enforced" -}}
  {{- if not $katalyst.declaredLabels -}}
    {{- fail "policy.katalyst.mode is enforced and policy.katalyst.declaredLabels is empty, so no NUMA affinity could be met: list the label keys that the node agents keep (--qos-inter-pod-affinity-labels), or set the mode to advisory" -}}
  {{- end -}}
  {{- if and .Values.controller.enabled (not .Values.controller.rbac.katalyst) -}}
    {{- fail "controller.rbac.katalyst is false and policy.katalyst.mode is enforced, so pods with NUMA affinity would wait for ever: set the right to true, or the mode to advisory or disabled" -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.controller.enabled (not .Values.controller.rbac.repair) (eq (toString .Values.policy.repair) "recreatePending") -}}
  {{- fail "controller.rbac.repair is false and policy.repair is recreatePending, so the controller could not delete the pods that it is to recreate: set rbac.repair to true, or policy.repair to report" -}}
{{- end -}}
{{- range $from, $to := (.Values.policy.coschedule | default dict).classMap -}}
  {{- if eq $from $to -}}
    {{- fail (printf "policy.coschedule.classMap.%s maps the class to itself: name another class, or leave it out" $from) -}}
  {{- end -}}
  {{- if eq $to "stowplan-parked" -}}
    {{- fail (printf "policy.coschedule.classMap.%s: claims of class stowplan-parked are never bound: name another class" $from) -}}
  {{- end -}}
{{- end -}}
{{- include "stowplan.validate.tls" . -}}
{{- end -}}

{{/* Who keeps the certificate, and what belongs to that. */}}
{{- define "stowplan.validate.tls" -}}
{{- $mode := include "stowplan.tls.mode" . -}}
{{- $inject := .Values.tls.certManager.inject -}}
{{- with .Values.tls.caBundle -}}
  {{- $pem := b64dec . -}}
  {{- if $inject -}}
    {{- fail "tls.caBundle and tls.certManager.inject are both set, and cert-manager would overwrite the first at each sync: set only one of them" -}}
  {{- end -}}
  {{- if ne $mode "provided" -}}
    {{- fail (printf "tls.mode is %s and tls.caBundle is set, which would be overwritten: remove tls.caBundle, or set tls.mode to provided" $mode) -}}
  {{- end -}}
  {{- if contains "PRIVATE KEY" $pem -}}
    {{- fail "tls.caBundle contains a private key, which every reader of the webhook configuration could read: give the CA's certificate only, and replace that key, for it is now in your shell history" -}}
  {{- end -}}
  {{- if not (contains "-----BEGIN CERTIFICATE-----" $pem) -}}
    {{- fail "tls.caBundle is not the base64 of a PEM certificate: set it to the output of `openssl base64 -A -in ca.crt`" -}}
  {{- end -}}
{{- else -}}
  {{- if and (eq $mode "provided") (not (hasKey .Values.webhook.annotations "service.beta.openshift.io/inject-cabundle")) -}}
    {{- fail (printf "tls.caBundle is empty, so the API server would trust no certificate of the webhook: set it to the base64 of the PEM certificate of the CA that signed Secret %q (certs/make.sh makes a throw-away pair), or leave tls.mode empty, and the controller makes the certificate" .Values.tls.secretName) -}}
  {{- end -}}
{{- end -}}
{{- if and $inject (ne $mode "certManager") -}}
  {{- fail (printf "tls.mode is %s and tls.certManager.inject is set, so two would write the caBundle: remove inject, or set tls.mode to certManager" $mode) -}}
{{- end -}}
{{- if and $inject .Values.tls.certManager.issuerRef -}}
  {{- fail "tls.certManager.inject names a Certificate that you have created, and tls.certManager.issuerRef is for the Certificate that the chart renders: set only one of them" -}}
{{- end -}}
{{- if and .Values.tls.certManager.issuerRef (eq $mode "self") -}}
  {{- fail (printf "tls.certManager.issuerRef is set and tls.mode is %s, so that issuer would not be used: set tls.mode to certManager, or remove issuerRef" $mode) -}}
{{- end -}}
{{- range $key, $_ := .Values.webhook.annotations -}}
  {{- if hasPrefix "cert-manager.io/inject-" $key -}}
    {{- fail (printf "webhook.annotations has %s, by which cert-manager would write the caBundle too: remove it, and set tls.mode to certManager (tls.certManager.inject names a Certificate that you have created)" $key) -}}
  {{- end -}}
{{- end -}}
{{- if eq $mode "self" -}}
  {{- if not .Values.controller.enabled -}}
    {{- fail "tls.mode is self and controller.enabled is false, so no process would make the webhook's certificate: set controller.enabled to true, or tls.mode to certManager, or create the certificate yourself (tls.mode provided, with tls.secretName and tls.caBundle)" -}}
  {{- end -}}
  {{- $ca := include "stowplan.seconds" .Values.tls.self.caLifetime | int64 -}}
  {{- $leaf := include "stowplan.seconds" .Values.tls.self.leafLifetime | int64 -}}
  {{- $overlap := include "stowplan.seconds" .Values.tls.self.overlap | int64 -}}
  {{- if lt $overlap 1 -}}
    {{- fail "tls.self.overlap is 0, and API servers need some time to read a new CA: set it to 1h" -}}
  {{- end -}}
  {{- if lt $leaf (mul 6 $overlap) -}}
    {{- fail (printf "tls.self.leafLifetime (%s) is less than six times tls.self.overlap (%s), so the certificate could be renewed before API servers trust a new CA: set it to at least six times the overlap" .Values.tls.self.leafLifetime .Values.tls.self.overlap) -}}
  {{- end -}}
  {{- if lt $ca (mul 4 $leaf) -}}
    {{- fail (printf "tls.self.caLifetime (%s) is less than four times tls.self.leafLifetime (%s), so a certificate could outlive its CA: set it to at least four times the certificate's" .Values.tls.self.caLifetime .Values.tls.self.leafLifetime) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
