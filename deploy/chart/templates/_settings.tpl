{{/* The file of the agent's options: those of the chart, then those of `settings` and `kafka`. */}}

{{- define "penstock.ledger" -}}
{{- if .Values.etcd.enabled -}}
{{- $members := list -}}
{{- range until 3 -}}
{{- $members = append $members (printf "%s:2379" (include "penstock.etcdHost" (dict "root" $ "member" .))) -}}
{{- end -}}
etcd://{{ join "," $members }}/{{ include "penstock.fullname" . }}
{{- else -}}
{{ .Values.ledger.url }}
{{- end -}}
{{- end -}}

{{- define "penstock.options" -}}
{{- $listen := list -}}
{{- range include "penstock.listeners" . | fromJsonArray -}}
{{- $listen = append $listen (printf "%s://%s:%d" .name (include "penstock.everyAddress" $) (int .port)) -}}
{{- end -}}
{{- $options := dict "ledger" (include "penstock.ledger" .) "store" .Values.store.url "listen" $listen "cache-dir" "/cache" -}}
{{- /* Names of pods are unique, so a session that has the agent's name is that of its ended container. */ -}}
{{- $_ := set $options "take-over-name" true -}}
{{- with .Values.ledger -}}
{{- if .tls.existingSecret -}}
{{- $_ := set $options "ledger-ca" "/etc/penstock/etcd/ca.crt" -}}
{{- if .tls.clientCertificate -}}
{{- $_ := set $options "ledger-cert" "/etc/penstock/etcd/tls.crt" -}}
{{- $_ := set $options "ledger-key" "/etc/penstock/etcd/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if .user -}}
{{- $_ := set $options "ledger-user" .user -}}
{{- end -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $options "http" (printf "https://%s:9644" (include "penstock.everyAddress" .)) -}}
{{- $_ := set $options "tls-cert" "/etc/penstock/tls/tls.crt" -}}
{{- $_ := set $options "tls-key" "/etc/penstock/tls/tls.key" -}}
{{- if ne .Values.tls.clientAuth "none" -}}
{{- $_ := set $options "tls-client-ca" (empty .Values.tls.clientCaSecret | ternary "/etc/penstock/tls/ca.crt" "/etc/penstock/client-ca/ca.crt") -}}
{{- end -}}
{{- else -}}
{{- $_ := set $options "http" (printf "%s:9644" (include "penstock.everyAddress" .)) -}}
{{- $_ := set $options "insecure" true -}}
{{- end -}}
{{- if kindIs "bool" .Values.rulesHold -}}
{{- $_ := set $options "hold-rules" .Values.rulesHold -}}
{{- end -}}
{{- if .Values.http.tokensSecret.name -}}
{{- $_ := set $options "http-token-file" "/etc/penstock/http/tokens" -}}
{{- end -}}
{{- $_ := set $options "metrics-open" .Values.http.metricsOpen -}}
{{- if .Values.authentication.enabled -}}
{{- if .Values.authentication.users -}}
{{- $_ := set $options "bootstrap-users" "/etc/penstock/config/users.toml" -}}
{{- end -}}
{{- if .Values.authentication.plainUsers.name -}}
{{- $_ := set $options "plain-users" "/etc/penstock/plain/users" -}}
{{- end -}}
{{- end -}}
{{- toJson (merge $options .Values.settings) -}}
{{- end -}}

{{- define "penstock.brokerConfigs" -}}
{{- $protocols := list -}}
{{- range include "penstock.listeners" . | fromJsonArray -}}
{{- $protocols = append $protocols (printf "%s:%s" .name (include "penstock.protocolOf" (dict "root" $ "listener" .name))) -}}
{{- end -}}
{{- $configs := dict "listener.security.protocol.map" (join "," $protocols) -}}
{{- if and .Values.tls.enabled (ne .Values.tls.clientAuth "none") -}}
{{- $_ := set $configs "ssl.client.auth" .Values.tls.clientAuth -}}
{{- end -}}
{{- $superUsers := .Values.authentication.superUsers -}}
{{- if include "penstock.hasRelayTls" . -}}
{{- $own := "listener.name.relay" -}}
{{- $_ := set $configs (printf "%s.ssl.keystore.location" $own) "/etc/penstock/relay/tls.crt" -}}
{{- $_ := set $configs (printf "%s.ssl.keystore.key.file" $own) "/etc/penstock/relay/tls.key" -}}
{{- $_ := set $configs (printf "%s.ssl.truststore.location" $own) "/etc/penstock/relay/ca.crt" -}}
{{- $_ := set $configs (printf "%s.ssl.client.auth" $own) "required" -}}
{{- /* What `kafka` says of names is for clients' certificates. */ -}}
{{- $_ := set $configs (printf "%s.ssl.principal.mapping.rules" $own) "DEFAULT" -}}
{{- $_ := set $configs (printf "%s.penstock.ssl.principal.source" $own) "SUBJECT" -}}
{{- if include "penstock.hasAuthorizer" . -}}
{{- $superUsers = append $superUsers (printf "User:CN=%s" (include "penstock.relayName" .)) -}}
{{- end -}}
{{- end -}}
{{- if $superUsers -}}
{{- $_ := set $configs "super.users" (join ";" $superUsers) -}}
{{- end -}}
{{- with .Values.authentication -}}
{{- if .enabled -}}
{{- $_ := set $configs "sasl.enabled.mechanisms" (join "," .mechanisms) -}}
{{- if .secretKey.name -}}
{{- $_ := set $configs "penstock.secret.key.file" "/etc/penstock/secret-key/key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (merge $configs .Values.kafka) -}}
{{- end -}}

{{/* JSON's texts, numbers, booleans and arrays are TOML's, too. */}}
{{- define "penstock.toml" -}}
# Written by the chart from its values.
{{- range $name, $value := include "penstock.options" . | fromJson }}
{{ $name }} = {{ toJson $value }}
{{- end }}

[set]
{{- range $name, $value := include "penstock.brokerConfigs" . | fromJson }}
{{ quote $name }} = {{ toJson $value }}
{{- end }}
{{ end -}}

{{/* The file of the first users. Passwords stay in their Secrets, which are mounted by the users' numbers. */}}
{{- define "penstock.users" -}}
# Written by the chart from its values.
{{- range $index, $user := .Values.authentication.users }}

[[users]]
name = {{ toJson $user.name }}
mechanism = {{ $user.mechanism | default "SCRAM-SHA-512" | toJson }}
password.file = "/etc/penstock/passwords/{{ $index }}"
{{- range $user.acls }}

[[users.acls]]
operation = {{ toJson .operation }}
resource_type = {{ toJson .resourceType }}
name = {{ toJson .name }}
pattern = {{ .pattern | default "LITERAL" | toJson }}
permission = {{ .permission | default "ALLOW" | toJson }}
host = {{ .host | default "*" | toJson }}
{{- end }}
{{- end }}
{{ end -}}
