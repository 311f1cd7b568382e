{{/* What the pods of agents have in common with those of jobs and tests: all of them run the agent's image. */}}

{{- define "penstock.podDefaults" -}}
serviceAccountName: {{ include "penstock.serviceAccount" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAsUser }}
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "penstock.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Whether `helm test` can log in, and so write a record. */}}
{{- define "penstock.testsRecords" -}}
{{- if or .Values.tests.clientConfigSecret.name (not (or .Values.authentication.enabled (eq .Values.tls.clientAuth "required"))) -}}
true
{{- end -}}
{{- end -}}

{{/* A test computes little, and nodes that agents fill have no further core. */}}
{{- define "penstock.testResources" -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.resources) (dict "requests" (dict "cpu" "100m" "memory" "128Mi"))) -}}
{{- end -}}

{{/* A job's container: image, options and files of an agent. `args` is a list, `resources` replaces an agent's. */}}
{{- define "penstock.jobContainer" -}}
image: {{ include "penstock.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson .args }}
# `kubectl describe pod` then says why it failed.
terminationMessagePolicy: FallbackToLogsOnError
env:
  {{- include "penstock.env" .root | nindent 2 }}
{{- with include "penstock.envFrom" .root }}
{{ . }}
{{- end }}
resources:
  {{- .resources | default (toYaml .root.Values.resources) | nindent 2 }}
securityContext:
  {{- include "penstock.containerSecurity" . | nindent 2 }}
volumeMounts:
  {{- include "penstock.mounts" .root | nindent 2 }}
{{- end -}}

{{- define "penstock.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- if and .Values.external.enabled (eq .Values.external.type "HostPort") }}
- name: HOST_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
{{- end }}
- name: PENSTOCK_CONFIG
  value: /etc/penstock/config/penstock.toml
- name: PENSTOCK_NAME
  value: $(POD_NAME)
- name: PENSTOCK_ADVERTISE
  value: {{ include "penstock.advertise" . | quote }}
- name: PENSTOCK_ADVERTISE_HTTP
  value: {{ .Values.tls.enabled | ternary (printf "https://%s:9644" (include "penstock.podHost" .)) (printf "http://%s:9644" (include "penstock.podAddress" .)) | quote }}
{{- with .Values.ledger.passwordSecret }}
{{- if .name }}
- name: PENSTOCK_LEDGER_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- with .Values.store }}
{{- if .region }}
- name: AWS_REGION
  value: {{ .region | quote }}
{{- end }}
{{- if .endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ .endpoint | quote }}
{{- end }}
{{- if hasPrefix "http://" .endpoint }}
- name: AWS_ALLOW_HTTP
  value: "true"
{{- end }}
{{- if .caSecret.name }}
- name: AWS_CA_BUNDLE
  value: /etc/penstock/store-ca/ca.crt
{{- end }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name | quote }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "penstock.envFrom" -}}
{{- with .Values.store.existingSecret -}}
envFrom:
  - secretRef:
      name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Secrets that are mounted as folders below /etc/penstock, as JSON: folder, Secret, and the key that becomes a file. */}}
{{- define "penstock.secretFolders" -}}
{{- $folders := list -}}
{{- with .Values -}}
{{- if .store.caSecret.name -}}
{{- $folders = append $folders (dict "folder" "store-ca" "secret" .store.caSecret.name "key" .store.caSecret.key "file" "ca.crt") -}}
{{- end -}}
{{- if .ledger.tls.existingSecret -}}
{{- $folders = append $folders (dict "folder" "etcd" "secret" .ledger.tls.existingSecret) -}}
{{- end -}}
{{- if .tls.enabled -}}
{{- $folders = append $folders (dict "folder" "tls" "secret" (include "penstock.tlsSecret" $)) -}}
{{- if and (ne .tls.clientAuth "none") .tls.clientCaSecret -}}
{{- $folders = append $folders (dict "folder" "client-ca" "secret" .tls.clientCaSecret) -}}
{{- end -}}
{{- end -}}
{{- if include "penstock.hasRelayTls" $ -}}
{{- $folders = append $folders (dict "folder" "relay" "secret" (include "penstock.relaySecret" $)) -}}
{{- end -}}
{{- if .http.tokensSecret.name -}}
{{- $folders = append $folders (dict "folder" "http" "secret" .http.tokensSecret.name "key" .http.tokensSecret.key "file" "tokens") -}}
{{- end -}}
{{- if .authentication.enabled -}}
{{- if .authentication.secretKey.name -}}
{{- $folders = append $folders (dict "folder" "secret-key" "secret" .authentication.secretKey.name "key" .authentication.secretKey.key "file" "key") -}}
{{- end -}}
{{- if .authentication.plainUsers.name -}}
{{- $folders = append $folders (dict "folder" "plain" "secret" .authentication.plainUsers.name "key" .authentication.plainUsers.key "file" "users") -}}
{{- end -}}
{{- end -}}
{{- range .secrets -}}
{{- $folders = append $folders (dict "folder" (printf "secrets/%s" .) "secret" .) -}}
{{- end -}}
{{- end -}}
{{- toJson $folders -}}
{{- end -}}

{{- define "penstock.mounts" -}}
- name: config
  mountPath: /etc/penstock/config
  readOnly: true
- name: tmp
  mountPath: /tmp
- name: cache
  mountPath: /cache
{{- range $index, $each := include "penstock.secretFolders" . | fromJsonArray }}
- name: secret-{{ $index }}
  mountPath: /etc/penstock/{{ $each.folder }}
  readOnly: true
{{- end }}
{{- if and .Values.authentication.enabled .Values.authentication.users }}
- name: passwords
  mountPath: /etc/penstock/passwords
  readOnly: true
{{- end }}
{{- end -}}

{{- define "penstock.volumes" -}}
- name: config
  configMap:
    name: {{ include "penstock.fullname" . | quote }}
# Files above 32 MiB while they are written: of an archive pass up to 256 MiB, merged ones up to 1 GiB.
- name: tmp
  emptyDir:
    sizeLimit: 2Gi
# Kernels that are compiled where those of the image do not fit the node's CPU.
- name: cache
  emptyDir:
    sizeLimit: 64Mi
{{- range $index, $each := include "penstock.secretFolders" . | fromJsonArray }}
- name: secret-{{ $index }}
  secret:
    secretName: {{ $each.secret | quote }}
    {{- if $each.key }}
    items:
      - key: {{ $each.key | quote }}
        path: {{ $each.file }}
    {{- end }}
{{- end }}
{{- if and .Values.authentication.enabled .Values.authentication.users }}
- name: passwords
  projected:
    sources:
      {{- range $index, $user := .Values.authentication.users }}
      - secret:
          name: {{ $user.passwordSecret.name | quote }}
          items:
            - key: {{ $user.passwordSecret.key | default "password" | quote }}
              path: {{ $index | quote }}
      {{- end }}
{{- end }}
{{- end -}}
