{{/* Names are fixed: what is outside of namespaces is there once, and so is the release. */}}

{{- define "cleat.selector" -}}
app.kubernetes.io/name: cleat-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cleat.labels" -}}
app.kubernetes.io/name: cleat
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "cleat.image" -}}
{{ printf "%s/%s:%s" .root.Values.image.registry .name (.root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- end -}}

{{/* For what Clusters that stay when the release goes need, and those who use them. */}}
{{- define "cleat.keep" -}}
helm.sh/resource-policy: keep
{{- end -}}

{{/* What the `restricted` level of pod security asks for, and a root that nobody writes to. */}}
{{- define "cleat.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "cleat.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "cleat.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where `helm test` runs its workflow. */}}
{{- define "cleat.testNamespace" -}}
{{ .Values.test.namespace | default (first .Values.namespaces) | default .Release.Namespace }}
{{- end -}}

{{/* Annotations of what runs before the release is deleted; the argument is the weight. */}}
{{- define "cleat.cleanupHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The same for `helm test`. */}}
{{- define "cleat.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
{{- /* What failed stays, with its logs, until the next test. */}}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
