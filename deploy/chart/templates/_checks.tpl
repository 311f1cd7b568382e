{{/* What the schema cannot say: values that do not fit together. Each message names the value and what to write. */}}
{{- define "penstock.check" -}}
{{- $v := .Values -}}
{{- if not $v.store.url -}}
{{- fail "store.url is missing: name the bucket, as in s3://BUCKET/PREFIX" -}}
{{- end -}}
{{- if and (not $v.ledger.url) (not $v.etcd.enabled) -}}
{{- fail "ledger.url is missing: name every member of etcd, as in etcd://HOST:2379/CLUSTER. Or let the chart run etcd: etcd.enabled=true" -}}
{{- end -}}
{{- if and $v.ledger.url $v.etcd.enabled -}}
{{- fail "ledger.url and etcd.enabled name two ledgers: set one of them" -}}
{{- end -}}
{{- if and (or $v.ledger.tls.existingSecret $v.ledger.user) $v.etcd.enabled -}}
{{- fail "ledger.tls and ledger.user are for an etcd of your own; that of etcd.enabled has neither TLS nor users" -}}
{{- end -}}
{{- if and $v.ledger.tls.clientCertificate (not $v.ledger.tls.existingSecret) -}}
{{- fail "ledger.tls.clientCertificate needs ledger.tls.existingSecret, with tls.crt and tls.key" -}}
{{- end -}}
{{- if ne (empty $v.ledger.user) (empty $v.ledger.passwordSecret.name) -}}
{{- fail "ledger.user and ledger.passwordSecret.name belong together: set both, or neither" -}}
{{- end -}}
{{- include "penstock.checkSecurity" . -}}
{{- include "penstock.checkAddresses" . -}}
{{- $drain := hasKey $v.settings "drain-timeout-s" | ternary (get $v.settings "drain-timeout-s") 20 | int -}}
{{- if le (int $v.terminationGracePeriodSeconds) (add $drain (int $v.preStopSleepSeconds) | int) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d s are not enough for preStopSleepSeconds (%d) and settings.drain-timeout-s (%d)" (int $v.terminationGracePeriodSeconds) (int $v.preStopSleepSeconds) $drain) -}}
{{- end -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- $name := include "penstock.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: objects would have the name %q, and that of a Service begins with a letter and has no dots" $name) -}}
{{- end -}}
{{- if and $v.monitoring.podMonitor.enabled (not $v.http.metricsOpen) (not $v.monitoring.podMonitor.tokenSecret.name) -}}
{{- fail "monitoring.podMonitor.tokenSecret.name is missing: with http.metricsOpen=false Prometheus needs a token" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.checkSecurity" -}}
{{- $v := .Values -}}
{{- $issuer := $v.tls.certManager.issuerRef.name -}}
{{- if and $v.tls.enabled (not $v.tls.existingSecret) (not $issuer) -}}
{{- fail "tls.enabled needs a certificate: set tls.existingSecret, or tls.certManager.issuerRef.name" -}}
{{- end -}}
{{- if and $v.tls.existingSecret $issuer -}}
{{- fail "tls.existingSecret and tls.certManager.issuerRef.name name two certificates: set one of them" -}}
{{- end -}}
{{- if and (not $v.tls.enabled) (or $v.tls.existingSecret $issuer (ne $v.tls.clientAuth "none")) -}}
{{- fail "tls.enabled is false, so tls.existingSecret, tls.certManager and tls.clientAuth protect nothing: set tls.enabled=true" -}}
{{- end -}}
{{- with $v.authentication -}}
{{- if .enabled -}}
{{- if not (or .superUsers .users) -}}
{{- fail "authentication.enabled: no principal would have a right. Name a principal in authentication.superUsers, or users in authentication.users" -}}
{{- end -}}
{{- range list "PLAIN" "OAUTHBEARER" -}}
{{- if and (has . $v.authentication.mechanisms) (not $v.tls.enabled) -}}
{{- fail (printf "authentication.mechanisms: %s sends secrets as they are, so it needs tls.enabled" .) -}}
{{- end -}}
{{- end -}}
{{- $configs := keys $v.kafka | join " " -}}
{{- range .users -}}
{{- $mechanism := .mechanism | default "SCRAM-SHA-512" -}}
{{- if not (or (has $mechanism $v.authentication.mechanisms) (has "PLAIN" $v.authentication.mechanisms) (contains "sasl.enabled.mechanisms" $configs)) -}}
{{- fail (printf "authentication.users: %s could not log in, as authentication.mechanisms lacks %s" .name $mechanism) -}}
{{- end -}}
{{- end -}}
{{- if and (has "OAUTHBEARER" .mechanisms) (not (contains "jwks.endpoint.url" $configs)) -}}
{{- fail "authentication.mechanisms: OAUTHBEARER needs the issuer's keys, kafka.sasl.oauthbearer.jwks.endpoint.url" -}}
{{- end -}}
{{- else if or .users .secretKey.name .plainUsers.name (and .superUsers (not (include "penstock.hasAuthorizer" $))) -}}
{{- fail "authentication.enabled is false, so authentication.superUsers, users, secretKey and plainUsers do nothing: set authentication.enabled=true" -}}
{{- else if and (include "penstock.hasAuthorizer" $) (not .superUsers) -}}
{{- fail "tls.clientAuth: certificates name clients, and ACLs count, so no principal would have a right. Name a principal in authentication.superUsers, as in User:CN=admin" -}}
{{- end -}}
{{- end -}}
{{- if and $v.relay.existingSecret (not (include "penstock.hasRelayTls" .)) -}}
{{- fail "relay.existingSecret does nothing: agents have certificates of each other where clients outside share an address (external), and with TLS, log-ins or ACLs" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.checkAddresses" -}}
{{- $v := .Values -}}
{{- $names := list "INTERNAL" "EXTERNAL" "RELAY" -}}
{{- $hosts := 0 -}}
{{- $nodePorts := empty $v.external.host | ternary list (list (int $v.external.nodePort)) -}}
{{- range $v.zones -}}
{{- $name := include "penstock.listenerOfZone" .name -}}
{{- if has $name $names -}}
{{- fail (printf "zones: %s is there twice, or is the name of a listener" .name) -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- if .externalHost -}}
{{- $hosts = add1 $hosts -}}
{{- if not $v.external.enabled -}}
{{- fail "zones[].externalHost needs external.enabled" -}}
{{- end -}}
{{- if and (eq $v.external.type "NodePort") (not .externalNodePort) -}}
{{- fail (printf "zones: %s needs externalNodePort, since external.type is NodePort" .name) -}}
{{- end -}}
{{- if and (eq $v.external.type "NodePort") (has (int .externalNodePort) $nodePorts) -}}
{{- fail (printf "zones: externalNodePort %d of %s is taken, and each Service needs a port of its own" (int .externalNodePort) .name) -}}
{{- end -}}
{{- $nodePorts = append $nodePorts (int .externalNodePort) -}}
{{- end -}}
{{- end -}}
{{- if $v.external.enabled -}}
{{- if eq $v.external.type "HostPort" -}}
{{- if or $v.external.host $hosts -}}
{{- fail "external.host and zones[].externalHost do not go with external.type HostPort: each agent has its node's address" -}}
{{- end -}}
{{- else if not (or $v.external.host $hosts) -}}
{{- fail "external.host is missing: the host name or address that clients connect to, for example that of the load balancer" -}}
{{- end -}}
{{- else if $v.external.host -}}
{{- fail "external.enabled is false, so external.host does nothing: set external.enabled=true" -}}
{{- end -}}
{{- end -}}
