#!/usr/bin/env bash
# Makes a throw-away CA and a serving certificate for the webhook. See README.md, or --help.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
Makes a throw-away CA and an ECDSA P-256 certificate for the webhook's Service, and prints the
commands that install the chart with them. For trying things out: nothing renews what it makes.

Usage: certs/make.sh [--namespace NS] [--service NAME] [--out DIR] [--days N]

  --namespace NS   namespace of the release           (default: stowplan-system)
  --service NAME   name of the webhook's Service      (default: stowplan-webhook)
  --out DIR        where to write ca.crt, tls.crt and tls.key; what is there is replaced
                   (default: target/certs in the repository, which git ignores)
  --days N         how long they are valid            (default: 365)
  --help           this text

The CA's key signs this one certificate and is never written to DIR. To change the certificate, run
it again, then both printed commands.

Example: certs/make.sh --namespace placement --service placement-stowplan-webhook
EOF
}

fail() {
  echo "certs/make.sh: $1" >&2
  exit 2
}

namespace=stowplan-system
service=stowplan-webhook
out=$root/target/certs
days=365

while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --namespace | --service | --out | --days)
      [[ $# -ge 2 && -n $2 ]] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) fail "unknown argument $1; see --help" ;;
  esac
done

name='^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'
[[ $namespace =~ $name ]] || fail "--namespace $namespace is not a namespace's name"
[[ $service =~ $name ]] || fail "--service $service is not a Service's name"
[[ $service == *-webhook ]] || fail "--service $service: the chart's Service is called NAME-webhook"
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || fail "--days $days is not a number of days from 1 to 99999"
command -v openssl >/dev/null || fail "openssl is not installed"

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A configuration of our own: the system's may add extensions, and does so differently everywhere.
# The names are in the SAN alone; nothing reads the common name, which is limited to 64 characters.
cat >"$work/openssl.cnf" <<EOF
[req]
prompt = no
distinguished_name = ca_name
[ca_name]
CN = stowplan throw-away CA
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:$service.$namespace.svc, DNS:$service.$namespace.svc.cluster.local
EOF

quiet() { # Only an error is worth reading.
  "$@" 2>"$work/log" || {
    cat "$work/log" >&2
    fail "openssl failed"
  }
}

for key in ca tls; do
  quiet openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/$key.key"
done
quiet openssl req -x509 -new -sha256 -config "$work/openssl.cnf" -extensions ca \
  -key "$work/ca.key" -days "$days" -out "$work/ca.crt"
quiet openssl req -new -sha256 -config "$work/openssl.cnf" -subj "/CN=stowplan webhook" \
  -key "$work/tls.key" -out "$work/tls.csr"
quiet openssl x509 -req -sha256 -in "$work/tls.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
  -CAcreateserial -extfile "$work/openssl.cnf" -extensions leaf -days "$days" -out "$work/tls.crt"
quiet openssl verify -CAfile "$work/ca.crt" "$work/tls.crt" >/dev/null

mkdir -p "$out"
out=$(cd "$out" && pwd)
mv "$work/ca.crt" "$work/tls.crt" "$work/tls.key" "$out/"

# What the chart puts before "-webhook" is the release's name if that contains "stowplan".
release=${service%-webhook}
override=
[[ $release == *stowplan* ]] || override=" --set fullnameOverride=$release"
cat <<EOF
Wrote ca.crt, tls.crt and tls.key to $out
for https://$service.$namespace.svc, valid for $days days. Use them with:

kubectl create namespace $namespace --dry-run=client -o yaml | kubectl apply -f -
kubectl -n $namespace create secret tls stowplan-tls --dry-run=client -o yaml \\
  --cert="$out/tls.crt" --key="$out/tls.key" | kubectl apply -f -
helm upgrade --install $release "$root/charts/stowplan" --namespace $namespace$override \\
  --set image.repository=YOUR/stowplan \\
  --set-string tls.caBundle="\$(openssl base64 -A -in "$out/ca.crt")"
EOF
