{{/*
Listeners of Kafka's protocol, as JSON: name, port in the pod, name of that port, advertised host and port, zone, and whether
it is for clients outside.
*/}}
{{- define "penstock.listeners" -}}
{{- $pod := .Values.tls.enabled | ternary (include "penstock.podHost" .) (include "penstock.podAddress" .) -}}
{{- $listeners := list (dict "name" "INTERNAL" "port" 9092 "portName" "kafka" "host" $pod "advertisedPort" 9092) -}}
{{- with .Values.external -}}
{{- if .enabled -}}
{{- $isNodePort := eq .type "NodePort" -}}
{{- $isHostPort := eq .type "HostPort" -}}
{{- $port := $isNodePort | ternary .nodePort .port | int -}}
{{- if or .host $isHostPort -}}
{{- $host := $isHostPort | ternary (include "penstock.nodeAddress" $) (include "penstock.bracketed" .host) -}}
{{- $listeners = append $listeners (dict "name" "EXTERNAL" "isExternal" true "port" 9094 "portName" "external" "host" $host "advertisedPort" $port) -}}
{{- end -}}
{{- range $index, $zone := $.Values.zones -}}
{{- if $zone.externalHost -}}
{{- $zonePort := $isNodePort | ternary ($zone.externalNodePort | default 0) $port | int -}}
{{- $listeners = append $listeners (dict "name" (include "penstock.listenerOfZone" $zone.name) "isExternal" true "zone" $zone.name "port" (add 9100 $index) "portName" (printf "zone-%d" $index) "host" (include "penstock.bracketed" $zone.externalHost) "advertisedPort" $zonePort) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "penstock.hasRelay" . -}}
{{- $relay := include "penstock.hasRelayTls" . | empty | ternary (include "penstock.podAddress" .) (include "penstock.podHost" .) -}}
{{- $listeners = append $listeners (dict "name" "RELAY" "port" 9095 "portName" "relay" "host" $relay "advertisedPort" 9095) -}}
{{- end -}}
{{- toJson $listeners -}}
{{- end -}}

{{/* Whether clients outside have one address for several agents: then agents relay requests of groups to each other. */}}
{{- define "penstock.hasRelay" -}}
{{- if and .Values.external.enabled (ne .Values.external.type "HostPort") -}}true{{- end -}}
{{- end -}}

{{/* Whether agents know each other by certificates: wherever clients have names or rights, or a listener encrypts. */}}
{{- define "penstock.hasRelayTls" -}}
{{- if and (include "penstock.hasRelay" .) (or .Values.tls.enabled .Values.authentication.enabled (include "penstock.hasAuthorizer" .)) -}}true{{- end -}}
{{- end -}}

{{/* Whether ACLs count: where clients authenticate, unless a broker config says otherwise. */}}
{{- define "penstock.hasAuthorizer" -}}
{{- $isAuthenticating := or .Values.authentication.enabled (ne .Values.tls.clientAuth "none") -}}
{{- if hasKey .Values.kafka "authorizer.class.name" | ternary (get .Values.kafka "authorizer.class.name") $isAuthenticating -}}true{{- end -}}
{{- end -}}

{{/* The common name of agents' certificates for each other. */}}
{{- define "penstock.relayName" -}}
{{ include "penstock.fullname" . }}-relay
{{- end -}}

{{/* Addresses of IPv6 stand in brackets. `ipFamilies` begins with the family of the pod's address. */}}
{{- define "penstock.podAddress" -}}
{{ eq (first .Values.ipFamilies) "IPv6" | ternary "[$(POD_IP)]" "$(POD_IP)" }}
{{- end -}}

{{- define "penstock.nodeAddress" -}}
{{ eq (first .Values.ipFamilies) "IPv6" | ternary "[$(HOST_IP)]" "$(HOST_IP)" }}
{{- end -}}

{{- define "penstock.bracketed" -}}
{{ contains ":" . | ternary (printf "[%s]" .) . }}
{{- end -}}

{{/* Every address of the pod: `[::]` takes IPv4's connections, too, and cannot be bound without IPv6. */}}
{{- define "penstock.everyAddress" -}}
{{ has "IPv6" .Values.ipFamilies | ternary "[::]" "0.0.0.0" }}
{{- end -}}

{{- define "penstock.ipFamilyPolicy" -}}
{{- if gt (len .Values.ipFamilies) 1 -}}PreferDualStack{{- end -}}
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

{{- define "penstock.protocolOf" -}}
{{- if eq .listener "RELAY" -}}
{{ include "penstock.hasRelayTls" .root | empty | ternary "PLAINTEXT" "SSL" }}
{{- else -}}
{{ include "penstock.protocol" .root }}
{{- end -}}
{{- end -}}

{{- define "penstock.advertise" -}}
{{- $parts := list -}}
{{- range include "penstock.listeners" . | fromJsonArray -}}
{{- $parts = append $parts (printf "%s://%s:%d" .name .host (int .advertisedPort)) -}}
{{- end -}}
{{- join "," $parts -}}
{{- end -}}
