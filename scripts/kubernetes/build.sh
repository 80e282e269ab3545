#!/usr/bin/env bash
# Builds Kubernetes and its companion programs from their pinned sources (components/go.mod) into
# target/kubernetes/bin. Up-to-date programs cost a second.
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
cd "$root/scripts/kubernetes/components"

usage() {
  cat <<'TEXT'
usage: scripts/kubernetes/build.sh [STAGE …]

  control   etcd, API server, controller manager, scheduler, kubectl, kwok, helm and kubeconform (the default)
  node      kubelet, kube-proxy, containerd with its shim and ctr

BALTRA_KUBERNETES=DIRECTORY   keeps binaries and caches there, for several checkouts (default: target/kubernetes)

example: scripts/kubernetes/build.sh control node
TEXT
}

place=${BALTRA_KUBERNETES:-$root/target/kubernetes}
bin=$place/bin
export GOMODCACHE=$place/cache/modules GOCACHE=$place/cache/build GOFLAGS='-mod=readonly -buildvcs=false'
export GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off

# The pinned version of a module of go.mod.
version() { awk -v module="$1" '$1 == module && $2 != "=>" {print $2; exit}' go.mod; }

# build NAME PACKAGE [LINKER FLAGS]: one binary. Go checks whether the existing one is up to date.
build() {
  local started=$SECONDS
  printf '%s %s …\n' "$(date +%H:%M:%S)" "$1"
  go build -trimpath -ldflags "-s -w ${3:-}" -o "$bin/$1" "$2"
  printf '%s %s: %s s\n' "$(date +%H:%M:%S)" "$1" $((SECONDS - started))
}

# tool NAME PACKAGE@VERSION: a program whose dependencies are those of its own module.
tool() {
  local started=$SECONDS
  printf '%s %s …\n' "$(date +%H:%M:%S)" "$1"
  GOBIN=$bin go install -trimpath -ldflags '-s -w' "$2"
  printf '%s %s: %s s\n' "$(date +%H:%M:%S)" "$1" $((SECONDS - started))
}

control() {
  build control ./control "$kubernetes"
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do ln -sf control "$bin/$name"; done
  build kwok sigs.k8s.io/kwok/cmd/kwok
  build helm helm.sh/helm/v4/cmd/helm
  tool kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
  stages
  monitors
}

# kwok's stages of nodes and Pods, without which kwok does not start.
stages() {
  local file source
  source=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for file in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease \
    pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
    cat "$source/$file.yaml"
    printf '\n---\n'
  done > "$place/kwok-stages.yaml"
}

# The Prometheus operator's definitions, for the chart's monitors; they need no compilation.
monitors() {
  local module=github.com/prometheus-operator/prometheus-operator directory name
  directory=$(go mod download -json "$module@v0.92.1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/example/prometheus-operator-crd
  for name in servicemonitors podmonitors prometheusrules; do
    printf -- '---\n'
    cat "$directory/monitoring.coreos.com_$name.yaml"
  done > "$place/monitors.yaml"
}

node() {
  build node ./node "$kubernetes"
  local name
  for name in kubelet kube-proxy; do ln -sf node "$bin/$name"; done
  local containerd=github.com/containerd/containerd/v2
  for name in containerd containerd-shim-runc-v2 ctr; do
    build "$name" "$containerd/cmd/$name" "-X $containerd/version.Version=$(version $containerd)"
  done
}

chosen=()
for stage in "$@"; do
  case $stage in
    -h | --help) usage; exit 0 ;;
    control | node) chosen+=("$stage") ;;
    *) echo "error: unknown stage '$stage' (--help lists the stages)" >&2; exit 2 ;;
  esac
done
mkdir -p "$bin"

# Uses this host's Go if it is recent enough, otherwise the one that scripts/setup.sh kubernetes installs.
wanted=go$(awk '$1 == "go" {print $2; exit}' go.mod)
have=$(go env GOVERSION 2> /dev/null || true)
if [[ $(printf '%s\n%s\n' "$wanted" "$have" | sort -V | tail -n 1) != "$have" ]]; then
  PATH=$root/target/venv/bin:$PATH
  have=$(go env GOVERSION) || { echo "error: go not found (scripts/setup.sh kubernetes installs it)" >&2; exit 3; }
fi

# Without these stamps every component reports v0.0.0-master as its version, and kubectl warns.
release=$(version k8s.io/kubernetes)
IFS=. read -r major minor _ <<< "${release#v}"
kubernetes=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  kubernetes+=" -X $package.gitVersion=$release -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  kubernetes+=" -X $package.gitTreeState=clean"
done

for stage in "${chosen[@]:-control}"; do "$stage"; done
