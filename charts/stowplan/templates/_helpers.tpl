{{/* The chart's name in names and labels. */}}
{{- define "stowplan.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/*
What the names of all objects start with. Cut so that "-webhook" still fits into the 63 characters of a
Service's name.
*/}}
{{- define "stowplan.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else if contains (include "stowplan.name" .) .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "stowplan.name" .) | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Deployment and Service of the webhook. */}}
{{- define "stowplan.webhook" -}}
{{ include "stowplan.fullname" . }}-webhook
{{- end -}}

{{/* The ConfigMap with the policy, and the Role to read it. */}}
{{- define "stowplan.policy" -}}
{{ include "stowplan.fullname" . }}-policy
{{- end -}}

{{/* Labels of every object. */}}
{{- define "stowplan.labels" -}}
{{ include "stowplan.ownLabels" . }}
{{- /* _validate.tpl refuses keys that are above, so none is there twice. */}}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Labels of an object for which a value adds some: these win over commonLabels, and the chart's over both.
Takes: root, further, component (or "").
*/}}
{{- define "stowplan.labels.with" -}}
{{- $own := include "stowplan.ownLabels" .root | fromYaml -}}
{{- with .component }}{{ $_ := set $own "app.kubernetes.io/component" . }}{{ end -}}
{{- mergeOverwrite (deepCopy .root.Values.commonLabels) (deepCopy .further) $own | toYaml -}}
{{- end -}}

{{/* Those of the chart itself. */}}
{{- define "stowplan.ownLabels" -}}
{{ include "stowplan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels that never change in a release, because a Deployment's selector cannot change. */}}
{{- define "stowplan.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stowplan.name" . | toYaml }}
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

{{/* The service account of the webhook. */}}
{{- define "stowplan.account" -}}
{{- .Values.serviceAccount.name | default (include "stowplan.fullname" .) -}}
{{- end -}}

{{/* The service account that holds the controller's rights. */}}
{{- define "stowplan.controller.account" -}}
{{- if eq (include "stowplan.controller.mode" .) "sidecar" -}}
{{ include "stowplan.account" . }}
{{- else -}}
{{- .Values.controller.serviceAccount.name | default (include "stowplan.controller" .) -}}
{{- end -}}
{{- end -}}

{{/* The name of that account in requests to the API server. */}}
{{- define "stowplan.controller.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "stowplan.controller.account" . }}
{{- end -}}

{{/* Services of which only metrics are read. Cut so that each name fits into 63 characters. */}}
{{- define "stowplan.webhook.metrics" -}}
{{ include "stowplan.fullname" . | trunc 47 | trimSuffix "-" }}-webhook-metrics
{{- end -}}

{{- define "stowplan.controller.metrics" -}}
{{ include "stowplan.fullname" . | trunc 44 | trimSuffix "-" }}-controller-metrics
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
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* Who keeps the webhook's certificate: self, certManager or provided. Older charts had no tls.mode. */}}
{{- define "stowplan.tls.mode" -}}
{{- if .Values.tls.mode -}}
{{ .Values.tls.mode }}
{{- else if .Values.tls.certManager.inject -}}
certManager
{{- else if .Values.tls.caBundle -}}
provided
{{- else -}}
self
{{- end -}}
{{- end -}}

{{/* The Secret with the webhook's certificate. */}}
{{- define "stowplan.tls.secret" -}}
{{- if eq (include "stowplan.tls.mode" .) "self" -}}
{{ include "stowplan.fullname" . }}-tls
{{- else -}}
{{ .Values.tls.secretName }}
{{- end -}}
{{- end -}}

{{/* The Secret with the CA and its key, in mode self. */}}
{{- define "stowplan.tls.caSecret" -}}
{{ include "stowplan.fullname" . }}-ca
{{- end -}}

{{/* The seconds of a duration such as 720h. */}}
{{- define "stowplan.seconds" -}}
{{- $units := dict "h" 3600 "m" 60 "s" 1 -}}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[hms]$" .)) -}}
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
  {{- /* Absent where cert-manager or the controller writes it, so that an upgrade does not remove it. */}}
  {{- with .root.Values.tls.caBundle }}
  caBundle: {{ . | quote }}
  {{- end }}
{{- end -}}

{{/* Whether the policy enables Streams. */}}
{{- define "stowplan.streams" -}}
{{- $settings := .Values.policy.streams | default dict -}}
{{- if not (and (kindIs "map" $settings) (eq (toString $settings.enabled) "false")) -}}
true
{{- end -}}
{{- end -}}

{{/* The namespace in which a test pod is created (dry run). */}}
{{- define "stowplan.test.namespace" -}}
{{- .Values.test.namespace | default (ternary "kube-public" "default" (eq .Release.Namespace "default")) -}}
{{- end -}}

{{/* Whether the policy enables coscheduling: without it, runs and their claims are not sent. */}}
{{- define "stowplan.coschedules" -}}
{{- $settings := .Values.policy.coschedule | default dict -}}
{{- if not (and (kindIs "map" $settings) (eq (toString $settings.enabled) "false")) -}}
true
{{- end -}}
{{- end -}}

{{/* The PriorityClass that placeholders of earlier releases name; empty: the chart does not keep it. */}}
{{- define "stowplan.placeholderPriorityClass" -}}
{{- $settings := .Values.policy.coschedule | default dict -}}
{{- $placeholder := ternary $settings dict (kindIs "map" $settings) | dig "placeholder" dict | default dict -}}
{{- $own := ternary $placeholder dict (kindIs "map" $placeholder) | dig "priorityClassName" "" -}}
{{- $create := and .Values.controller.enabled .Values.controller.placeholderPriorityClass.create (not $own) -}}
{{- if and $create (include "stowplan.coschedules" .) -}}
{{ include "stowplan.fullname" . }}-placeholder
{{- end -}}
{{- end -}}

{{/* Whether the policy enables MPI clusters. */}}
{{- define "stowplan.mpi" -}}
{{- $settings := .Values.policy.mpi | default dict -}}
{{- if not (and (kindIs "map" $settings) (eq (toString $settings.enabled) "false")) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether the policy enables Katalyst NUMA affinity. */}}
{{- define "stowplan.katalyst" -}}
{{- $settings := .Values.policy.katalyst | default dict -}}
{{- if not (and (kindIs "map" $settings) (eq (toString $settings.mode) "disabled")) -}}
true
{{- end -}}
{{- end -}}

{{/* The label keys that NUMA affinity counts, as a JSON list. */}}
{{- define "stowplan.katalyst.labels" -}}
{{- (.Values.policy.katalyst | default dict).declaredLabels | default list | uniq | toJson -}}
{{- end -}}

{{/*
The namespaces whose pods and claims are not changed, as a JSON list: the one source for the webhook's
selector and for the policy, which the controller, `plan` and `check` read.
*/}}
{{- define "stowplan.excludedNamespaces" -}}
{{- $always := list "kube-system" "kube-node-lease" .Release.Namespace -}}
{{- $ofPolicy := .Values.policy.excludedNamespaces | default list -}}
{{- if not (kindIs "slice" $ofPolicy) -}}
  {{- fail (printf "policy.excludedNamespaces is %s, and must be a list of names: write [%v]" (toJson $ofPolicy) $ofPolicy) -}}
{{- end -}}
{{- concat $always .Values.webhook.excludedNamespaces $ofPolicy | uniq | toJson -}}
{{- end -}}

{{/* The names of the administrator's own match conditions, as a JSON list. */}}
{{- define "stowplan.matchConditions" -}}
{{- $names := list -}}
{{- range .Values.webhook.matchConditions -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* The metadata of both webhook configurations. */}}
{{- define "stowplan.webhook.metadata" -}}
name: {{ include "stowplan.fullname" . | quote }}
labels:
  {{- include "stowplan.labels.with" (dict "root" . "further" .Values.webhook.labels "component" "") | nindent 2 }}
{{- /* Where `plan --live` and `check` find the policy. */}}
{{- $own := dict "stowplan.dev/policy" (printf "%s/%s" .Release.Namespace (include "stowplan.policy" .)) }}
{{- if eq (include "stowplan.tls.mode" .) "certManager" }}
{{- $chart := printf "%s/%s-tls" .Release.Namespace (include "stowplan.fullname" .) }}
{{- $_ := set $own "cert-manager.io/inject-ca-from" (.Values.tls.certManager.inject | default $chart) }}
{{- end }}
annotations:
  {{- mergeOverwrite (deepCopy .Values.webhook.annotations) $own | toYaml | nindent 2 }}
{{- end -}}

{{/* The common part of the two mutating webhooks. Takes: root, resource. */}}
{{- define "stowplan.webhook.placing" -}}
{{ include "stowplan.webhook.client" (dict "root" .root "path" "/mutate") }}
admissionReviewVersions: [v1]
rules:
# Only CREATE: the fields that place a pod, and the class of a claim, cannot change afterwards. Only the
# object itself: binding, eviction and status are subresources and are never sent.
- operations: [CREATE]
  apiGroups: [""]
  apiVersions: [v1]
  resources: [{{ .resource }}]
  scope: Namespaced
# An object that is created through another version of the API is converted and sent too.
matchPolicy: Equivalent
# Ignore by default: an unavailable webhook must not prevent a cluster from starting pods.
failurePolicy: {{ .root.Values.webhook.failurePolicy }}
# Longer than any answer takes (a decision waits a second at most), shorter than a client's patience.
timeoutSeconds: {{ .root.Values.webhook.timeoutSeconds }}
# Called again when a later webhook changed the object: it may have added affinity of its own, into which
# stowplan's has to be merged again. Answering twice is safe: marks of the first answer are kept.
reinvocationPolicy: IfNeeded
# Nothing is written during admission, so server-side dry runs are answered as well.
sideEffects: None
namespaceSelector:
  matchExpressions:
  # If the control plane's namespaces were included, a broken webhook could prevent a cluster's recovery;
  # with its own namespace it could prevent its own start. The server excludes them once more.
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
    {{- range include "stowplan.excludedNamespaces" .root | fromJsonArray }}
    - {{ . | quote }}
    {{- end }}
  # The opt-out of a namespace. An absent label matches NotIn.
  - key: stowplan.dev/ignore
    operator: NotIn
    values: ["true"]
  {{- with .asked }}
  - key: {{ . }}
    operator: In
    values: ["true"]
  {{- end }}
objectSelector:
  matchExpressions:
  # The opt-out of one object.
  - key: stowplan.dev/ignore
    operator: NotIn
    values: ["true"]
{{- end -}}

{{/* The condition of pods that stowplan decides about in any namespace, as CEL. */}}
{{- define "stowplan.webhook.known" -}}
(has(object.metadata.annotations) && object.metadata.annotations.exists(key,
key.startsWith('streams.ibm.com/') ||
key.startsWith('stowplan.dev/') ||
key.startsWith('mpi.stowplan.dev/') ||
key.startsWith('katalyst.kubewharf.io/microtopology_')))
|| (has(object.metadata.labels) && 'streams.ibm.com/job' in object.metadata.labels)
|| (has(object.spec.tolerations) && object.spec.tolerations.exists(toleration,
has(toleration.key) && has(toleration.value) &&
toleration.key in {{ include "stowplan.policy.exclusiveTaints" . }}))
{{- if include "stowplan.coschedules" . }}
|| (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner,
has(owner.controller) && owner.controller &&
owner.apiVersion.startsWith('tekton.dev/') && owner.kind == 'TaskRun'))
{{- end }}
{{- end -}}

{{/* The conditions of all webhooks for pods, after their own. */}}
{{- define "stowplan.webhook.ofPods" -}}
# A mirror pod shows a pod that a kubelet already runs from a file of its node: it cannot be placed.
- name: not-a-mirror-pod
  expression: >-
    !(has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations)
{{- with .Values.webhook.matchConditions }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The first rule of the policies for namespaced objects: these namespaces are never changed. */}}
{{- define "stowplan.policy.namespaces" -}}
- message: the controller changes nothing in this namespace
  reason: Forbidden
  expression: "!(request.namespace in ['kube-system', 'kube-node-lease', '{{ .Release.Namespace }}'])"
{{- end -}}

{{/* The condition of policies for all users that except the controller, which has policies of its own. */}}
{{- define "stowplan.policy.notController" -}}
- name: not-by-the-controller
  expression: request.userInfo.username != '{{ include "stowplan.controller.user" . }}'
{{- end -}}

{{/*
The keys of the taint of exclusive pools, as a list of CEL. Earlier releases used the second one; the pods that
they admitted tolerate no other.
*/}}
{{- define "stowplan.policy.exclusiveTaints" -}}
['status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive', 'stowplan.dev/exclusive']
{{- end -}}

{{/* Whether the controller may change the label of a node with this key. */}}
{{- define "stowplan.policy.nodeLabel" -}}
{{- $own := list -}}
{{- if .Values.controller.rbac.pools }}{{ $own = append $own "key.startsWith('pool.stowplan.node-restriction.kubernetes.io/')" }}{{ end -}}
{{- if .Values.controller.rbac.katalyst }}{{ $own = append $own "key == 'stowplan.dev/numa-zones'" }}{{ end -}}
{{ join " || " $own | default "false" }}
{{- end -}}

{{/* The variables with the labels or annotations of the object, and those before. Takes: the field. */}}
{{- define "stowplan.policy.changed" -}}
- name: {{ . }}
  expression: object.metadata.?{{ . }}.orValue({})
- name: old{{ title . }}
  expression: "request.operation == 'UPDATE' ? oldObject.metadata.?{{ . }}.orValue({}) : {}"
{{- end -}}

{{/* Whether a workload makes the workers of an MPI cluster. */}}
{{- define "stowplan.policy.workers" -}}
object.spec.template.?metadata.?annotations[?'mpi.stowplan.dev/cluster'].orValue('') != '' &&
object.spec.template.?metadata.?annotations[?'mpi.stowplan.dev/role'].orValue('') == 'worker'
{{- end -}}

{{/* The metadata of a workload are unchanged, but for its annotations. */}}
{{- define "stowplan.policy.metadata" -}}
object.metadata.?labels == oldObject.metadata.?labels &&
object.metadata.?finalizers == oldObject.metadata.?finalizers &&
object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
{{- end -}}

{{/*
No annotations but these differ from oldAnnotations. Takes: the list of keys. Needs the variables annotations and
oldAnnotations.
*/}}
{{- define "stowplan.policy.annotations" -}}
variables.annotations.all(key, key in ['{{ join "', '" . }}'] ||
(key in variables.oldAnnotations && variables.oldAnnotations[key] == variables.annotations[key])) &&
variables.oldAnnotations.all(key, key in ['{{ join "', '" . }}'] || key in variables.annotations)
{{- end -}}

{{/* The annotations of a hook that `helm test` runs. Takes: weight. */}}
{{- define "stowplan.test.hook" -}}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The annotations of a hook that runs after the release was uninstalled. Takes: weight. */}}
{{- define "stowplan.teardown.hook" -}}
annotations:
  helm.sh/hook: post-delete
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
