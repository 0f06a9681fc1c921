{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* podflame.reference (list $ .Values.image): the name by which the image is pulled */}}
{{- define "podflame.reference" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* podflame.mebibytes "10Gi": 10240 */}}
{{- define "podflame.mebibytes" -}}
{{- $n := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . }}{{ mul $n 1048576 }}{{ else if hasSuffix "Gi" . }}{{ mul $n 1024 }}{{ else }}{{ $n }}{{ end }}
{{- end -}}

{{/* podflame.selector "agent": never changes once released */}}
{{- define "podflame.selector" -}}
app.kubernetes.io/name: podflame
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* podflame.tlsSecret $: the Secret of the hub's certificate */}}
{{- define "podflame.tlsSecret" -}}
{{- with .Values.hub.tls -}}
{{- if eq .source "secret" -}}
{{ .secretName }}
{{- else if eq .source "cert-manager" -}}
podflame-hub-certificate
{{- else -}}
podflame-hub-tls
{{- end -}}
{{- end -}}
{{- end -}}

{{/* podflame.placement .Values.agent: on which nodes the scheduler puts the pod, and how urgently.
podflame's programs are for Linux on x86-64. */}}
{{- define "podflame.placement" -}}
nodeSelector: {{- merge (dict "kubernetes.io/os" "linux" "kubernetes.io/arch" "amd64") (.nodeSelector | default dict) | toYaml | nindent 2 }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* podflame.hubsShare $: "true" if several hubs may run at once: they share their store, and keep
nothing on a volume. They elect one by the Lease podflame-hub, also if there is one replica, because
two run during an upgrade. */}}
{{- define "podflame.hubsShare" -}}
{{- if and (ne .Values.hub.store "sqlite") (not .Values.hub.persistence.enabled) }}true{{ end }}
{{- end -}}

{{/* podflame.spread .Values.hub: hub, with an affinity that prefers other nodes than those of
other hubs, unless the user says where hubs are among themselves */}}
{{- define "podflame.spread" -}}
{{- $hub := deepCopy . -}}
{{- if gt (int .replicas) 1 -}}
{{- $apart := dict "weight" 100 "podAffinityTerm" (dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "podflame.selector" "hub" | fromYaml))) -}}
{{- $anti := dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $apart)) -}}
{{- $_ := set $hub "affinity" (merge (deepCopy (.affinity | default dict)) (hasKey (.affinity | default dict) "podAntiAffinity" | ternary dict $anti)) -}}
{{- end -}}
{{- toYaml $hub -}}
{{- end -}}

{{/* podflame.labels (list $ "agent") */}}
{{- define "podflame.labels" -}}
{{- $root := index . 0 -}}
{{ include "podflame.selector" (index . 1) }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}
