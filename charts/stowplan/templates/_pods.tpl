{{/* The common parts of the webhook's pods and the controller's. */}}

{{/* Labels and annotations of pods. Takes: root, labels (the selector's). */}}
{{- define "stowplan.pod.metadata" -}}
labels:
  {{- /* A second guard: if the namespace's exclusion is removed, stowplan's pods still do not wait for themselves. */}}
  {{- $own := merge (dict "stowplan.dev/ignore" "true") .labels }}
  {{- toYaml (mergeOverwrite (deepCopy .root.Values.commonLabels) .root.Values.podLabels $own) | nindent 2 }}
{{- /* No checksum of the policy or the certificate: both are followed while running. */}}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The head of a pod's specification. */}}
{{- define "stowplan.pod.common" -}}
# The watches need it.
automountServiceAccountToken: true
# No environment variable for each Service of the namespace.
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "stowplan.container.security" -}}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end -}}

{{/* Where pods may run. Takes: root, labels (the selector's), affinity. */}}
{{- define "stowplan.pod.where" -}}
# The loss of one node should not stop all replicas. Best effort, so that one node is enough to start.
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- toYaml .labels | nindent 6 }}
  # Counts each revision alone: otherwise a rolling update ends unevenly spread.
  matchLabelKeys: [pod-template-hash]
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .root.Values.tolerations | default list -}}
{{- range $taint := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" -}}
  {{- /* Of two tolerations of a taint the shorter counts, so one of the user's own is left alone. */ -}}
  {{- $has := false -}}
  {{- range $.root.Values.tolerations -}}
    {{- if and (has (.key | default $taint) (list $taint)) (has (.effect | default "NoExecute") (list "NoExecute")) -}}
      {{- $has = true -}}
    {{- end -}}
  {{- end -}}
  {{- if not $has -}}
    {{- $seconds := int $.root.Values.lostNodeSeconds -}}
    {{- $of := dict "key" $taint "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" $seconds -}}
    {{- $tolerations = append $tolerations $of -}}
  {{- end -}}
{{- end -}}
{{- with $tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/*
The controller, as an item of a pod's containers: in pods of its own, or (controller.sidecar) in the
webhook's, whose ports and readiness it must leave alone.
*/}}
{{- define "stowplan.controller.container" -}}
{{- $sidecar := .Values.controller.sidecar -}}
- name: controller
  image: {{ include "stowplan.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
  - controller
  - --namespace={{ .Release.Namespace }}
  - --policy-config-map={{ include "stowplan.policy" . }}
  - --admin-listen={{ .Values.listenAddress }}:{{ ternary 8081 8080 $sidecar }}
  # The placeholders' image, if the policy names none: nodes must have it, or be able to pull it in the
  # namespaces of the groups, where imagePullSecrets of this chart do not exist.
  - --image={{ include "stowplan.image" . }}
  # The Lease decides which controller leads; the others are on standby.
  - --identity=$(POD_NAME)
  {{- if eq (include "stowplan.tls.mode" .) "self" }}
  # The webhook's certificate, and the CA whose certificate is written into the caBundles.
  - --tls-secret={{ include "stowplan.tls.secret" . }}
  - --ca-secret={{ include "stowplan.tls.caSecret" . }}
  - --service={{ include "stowplan.webhook" . }}
  - --webhook-configuration={{ include "stowplan.fullname" . }}
  - --ca-lifetime={{ .Values.tls.self.caLifetime }}
  - --leaf-lifetime={{ .Values.tls.self.leafLifetime }}
  - --ca-overlap={{ .Values.tls.self.overlap }}
  {{- end }}
  {{- with .Values.controller.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: STOWPLAN_LOG
    value: {{ .Values.logLevel | quote }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  ports:
  # Plain HTTP: probes and metrics, nothing secret.
  - name: {{ ternary "ctl-admin" "admin" $sidecar }}
    containerPort: {{ ternary 8081 8080 $sidecar }}
    protocol: TCP
  # Liveness means only that the process answers: a restart would not help otherwise.
  livenessProbe:
    httpGet: {path: /livez, port: {{ ternary "ctl-admin" "admin" $sidecar }}}
    periodSeconds: 10
    timeoutSeconds: 2
    failureThreshold: 3
  {{- if $sidecar }}
  # No readiness probe: a pod is ready when all its containers are, and a controller that is still
  # reading the cluster must not take a webhook that could answer out of its Service.
  {{- else }}
  # Ready: watches synced, with or without the Lease. A rollout waits for it, so that the next leader
  # already knows the cluster.
  readinessProbe:
    httpGet: {path: /readyz, port: admin}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  {{- end }}
  resources:
    {{- toYaml .Values.controller.resources | nindent 4 }}
  {{- include "stowplan.container.security" . | nindent 2 }}
{{- end -}}
