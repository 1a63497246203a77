{{/* The name of a pool's model in the API, by the operator's rule. */}}
{{- define "pando.modelName" -}}
{{- .servedModelName | default (.model | trimSuffix "/" | splitList "/" | last) -}}
{{- end -}}

{{/* One pool of .Values.pools as a WorkerPool, with the values for all pools: the hub's token and the model
cache. Arguments: root, name, spec. */}}
{{- define "pando.pool" -}}
{{- $root := index . 0 -}}
{{- $workers := $root.Values.workers -}}
{{- $spec := deepCopy (index . 2) -}}
{{- $template := $spec.template | default dict -}}
{{- with $workers.huggingFace.existingSecret -}}
{{- $token := dict "name" "HF_TOKEN" "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $workers.huggingFace.key)) -}}
{{- $_ := set $template "env" (append ($template.env | default list) $token) -}}
{{- end -}}
{{- if $workers.modelCache.enabled -}}
{{- $claim := $workers.modelCache.existingClaim | default (printf "%s-models" (include "pando.fullname" $root)) -}}
{{- $volume := dict "name" "models" "persistentVolumeClaim" (dict "claimName" $claim) -}}
{{- $_ := set $template "volumes" (append ($template.volumes | default list) $volume) -}}
{{- $mount := dict "name" "models" "mountPath" "/cache/huggingface" -}}
{{- $_ := set $template "volumeMounts" (append ($template.volumeMounts | default list) $mount) -}}
{{- end -}}
{{- if $template -}}
{{- $_ := set $spec "template" $template -}}
{{- end -}}
apiVersion: pando.dev/v1alpha1
kind: WorkerPool
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "pando.labels" (list $root "worker") | nindent 4 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end -}}
