{{/* Peers and rules of network policies. Pools' pods may be in other namespaces where the operator watches all. */}}
{{- define "pando.workersPeer" -}}
- podSelector:
    matchExpressions:
      - key: pando.dev/pool
        operator: Exists
  {{- if .Values.operator.watchAllNamespaces }}
  namespaceSelector: {}
  {{- end }}
{{- end -}}

{{- define "pando.dnsEgress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}

{{/* To API server and model hub. A rule without ports would be one for all ports. */}}
{{- define "pando.httpsEgress" -}}
{{- with .Values.networkPolicy.httpsPorts -}}
- ports:
    {{- range . }}
    - port: {{ . }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- define "pando.redisEgress" -}}
{{- if not .Values.redis.external.existingSecret -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "pando.selector" (list . "redis") | nindent 10 }}
  ports:
    - port: 6379
{{- else if not .Values.networkPolicy.extraEgress -}}
{{- fail "networkPolicy.extraEgress is empty: it has to lead to the Redis of redis.external" -}}
{{- end -}}
{{- end -}}

{{- define "pando.extraEgress" -}}
{{- with .Values.networkPolicy.extraEgress -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}
