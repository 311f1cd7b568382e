{{/* Names and labels. */}}

{{- define "penstock.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of objects. 40 characters at most: with what is added, that of a CronJob has 52 and that of a Service 63. */}}
{{- define "penstock.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $default | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
The name of a zone's object: `name` and the zone, which may have letters and marks that names of objects cannot. 63
characters at most, as a Service has.
*/}}
{{- define "penstock.inZone" -}}
{{- $name := .name -}}
{{- with .zone -}}
{{- $name = printf "%s-%s" $name (lower . | replace "_" "-" | replace "." "-") -}}
{{- end -}}
{{- gt (len $name) 63 | ternary (printf "%s-%s" (trunc 54 $name | trimSuffix "-") (sha256sum $name | trunc 8)) $name -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ include "penstock.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The pods of agents, in all zones. */}}
{{- define "penstock.agentSelector" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "penstock.fullname" .) "default") -}}
{{- end -}}

{{/* Host name of the Service, which the certificate has. */}}
{{- define "penstock.host" -}}
{{ include "penstock.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "penstock.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret of the certificate: one that exists, or the one that cert-manager writes. */}}
{{- define "penstock.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "penstock.fullname" .)) -}}
{{- end -}}

{{/* The Secret of agents' certificate for each other, likewise. */}}
{{- define "penstock.relaySecret" -}}
{{- .Values.relay.existingSecret | default (include "penstock.relayName" .) -}}
{{- end -}}

{{/* The agents that are there at least, for the alert AgentsMissing. 0 where another autoscaler decides. */}}
{{- define "penstock.agentCount" -}}
{{- $each := .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicas | int -}}
{{- if .Values.zones -}}
{{- $count := 0 -}}
{{- range .Values.zones -}}
{{- $count = add $count ($.Values.autoscaling.enabled | ternary $each (.replicas | default $each)) -}}
{{- end -}}
{{ $count }}
{{- else -}}
{{ $each }}
{{- end -}}
{{- end -}}
