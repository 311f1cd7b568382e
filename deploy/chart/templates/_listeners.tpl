{{/* Listeners of Kafka's protocol, as JSON: name, port in the pod, name of that port, advertised host and port, zone. */}}
{{- define "penstock.listeners" -}}
{{- $pod := .Values.tls.enabled | ternary (include "penstock.podHost" .) "$(POD_IP)" -}}
{{- $listeners := list (dict "name" "INTERNAL" "port" 9092 "portName" "kafka" "host" $pod "advertisedPort" 9092) -}}
{{- with .Values.external -}}
{{- if .enabled -}}
{{- $isNodePort := eq .type "NodePort" -}}
{{- $isHostPort := eq .type "HostPort" -}}
{{- $port := $isNodePort | ternary .nodePort .port | int -}}
{{- if or .host $isHostPort -}}
{{- $host := $isHostPort | ternary "$(HOST_IP)" .host -}}
{{- $listeners = append $listeners (dict "name" "EXTERNAL" "port" 9094 "portName" "external" "host" $host "advertisedPort" $port) -}}
{{- end -}}
{{- range $index, $zone := $.Values.zones -}}
{{- if $zone.externalHost -}}
{{- $zonePort := $isNodePort | ternary ($zone.externalNodePort | default 0) $port | int -}}
{{- $listeners = append $listeners (dict "name" (include "penstock.listenerOfZone" $zone.name) "zone" $zone.name "port" (add 9100 $index) "portName" (printf "zone-%d" $index) "host" $zone.externalHost "advertisedPort" $zonePort) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $listeners -}}
{{- end -}}

{{/* Clients of a listener that is named as a zone count as clients of that zone. */}}
{{- define "penstock.listenerOfZone" -}}
{{- regexReplaceAll "[^A-Z0-9_]" (upper .) "_" -}}
{{- end -}}

{{/* The name of a pod in DNS: an endpoint of a headless Service is named by its address with dashes. */}}
{{- define "penstock.podHost" -}}
{dashed:$(POD_IP)}.{{ include "penstock.fullname" . }}-agents.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "penstock.protocol" -}}
{{- if .Values.authentication.enabled -}}
{{ .Values.tls.enabled | ternary "SASL_SSL" "SASL_PLAINTEXT" }}
{{- else -}}
{{ .Values.tls.enabled | ternary "SSL" "PLAINTEXT" }}
{{- end -}}
{{- end -}}

{{- define "penstock.advertise" -}}
{{- $parts := list -}}
{{- range include "penstock.listeners" . | fromJsonArray -}}
{{- $parts = append $parts (printf "%s://%s:%d" .name .host (int .advertisedPort)) -}}
{{- end -}}
{{- join "," $parts -}}
{{- end -}}
