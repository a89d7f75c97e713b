{{/* What the webhook's pods and the controller's have in common. */}}

{{/* Labels and annotations of pods. Takes: root, labels (the selector's). */}}
{{- define "stowplan.pod.metadata" -}}
labels:
  {{- /* Second belt: should the namespace's exclusion ever be edited away, our pods still do not wait for themselves. */}}
  {{- $own := merge (dict "stowplan.dev/ignore" "true") .labels }}
  {{- toYaml (mergeOverwrite (deepCopy .root.Values.podLabels) $own) | nindent 2 }}
{{- /* No checksum of the policy or the certificate: both are read again while running. */}}
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
# What the "restricted" Pod Security level asks for, and a root file system that nobody can write.
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # Makes a mounted key readable for our group instead of for everybody.
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "stowplan.container.security" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The volume with the policy. */}}
{{- define "stowplan.pod.policy" -}}
- name: policy
  configMap:
    name: {{ include "stowplan.fullname" . }}-policy
{{- end -}}

{{/* Where pods may run. Takes: root, labels (the selector's), affinity. */}}
{{- define "stowplan.pod.where" -}}
# One node's end should not be all replicas' end. Best effort, so that one node is enough to start.
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- toYaml .labels | nindent 6 }}
  # Counts each revision alone: otherwise a rolling update ends up lopsided.
  matchLabelKeys: [pod-template-hash]
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
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
  - --policy=/etc/stowplan/policy/policy.yaml
  - --admin-listen=0.0.0.0:{{ ternary 8081 8080 $sidecar }}
  # Of placeholders, where the policy names none: nodes have it, or can pull it as they did this one.
  - --image={{ include "stowplan.image" . }}
  # Who holds the Lease: one controller acts, the others stand by.
  - --identity=$(POD_NAME)
  env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: STOWPLAN_LOG
    value: {{ .Values.logLevel | quote }}
  ports:
  # Plain HTTP: probes and metrics, nothing secret.
  - name: {{ ternary "ctl-admin" "admin" $sidecar }}
    containerPort: {{ ternary 8081 8080 $sidecar }}
    protocol: TCP
  # Alive says only that the process turns its loop: restarting it cures nothing else.
  livenessProbe:
    httpGet: {path: /livez, port: {{ ternary "ctl-admin" "admin" $sidecar }}}
    periodSeconds: 10
    timeoutSeconds: 2
    failureThreshold: 3
  {{- if $sidecar }}
  # No readiness probe: a pod is ready when all its containers are, and a controller that is still
  # reading the cluster must not take a webhook that could answer out of its Service.
  {{- else }}
  # Ready: watches synced, whether it holds the Lease or stands by. A rollout waits for it, so that
  # the next holder knows the cluster already.
  readinessProbe:
    httpGet: {path: /readyz, port: admin}
    periodSeconds: 2
    timeoutSeconds: 2
    failureThreshold: 2
  {{- end }}
  resources:
    {{- toYaml .Values.controller.resources | nindent 4 }}
  {{- include "stowplan.container.security" . | nindent 2 }}
  # The whole folder, no subPath: a subPath never sees the ConfigMap change.
  volumeMounts:
  - name: policy
    mountPath: /etc/stowplan/policy
    readOnly: true
{{- end -}}
