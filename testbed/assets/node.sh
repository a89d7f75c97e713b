#!/bin/sh
# The first process of a node, in namespaces of its own: it makes the node's mounts, starts the
# node's programs, and starts each again when it ends, as an init system does.
# node.sh FOLDER TOOLS LOGS NAME ADDRESS CONTROLLERS
set -eu
folder=$1 tools=$2 logs=$3 name=$4 address=$5 controllers=$6
export PATH="$tools:$PATH"
cd "$folder"
rm -f serves

mount --make-rshared /
# The devices of this node, and below them its control groups.
mount -t sysfs sysfs /sys
if [ "$controllers" = unified ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # A group that passes controllers on has no processes of its own.
    mkdir -p /sys/fs/cgroup/init
    while read -r process; do
        echo "$process" >/sys/fs/cgroup/init/cgroup.procs || true
    done </sys/fs/cgroup/cgroup.procs
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done
else
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for hierarchy in $controllers; do
        group=/sys/fs/cgroup/${hierarchy#name=}
        mkdir "$group"
        mount -t cgroup -o "$hierarchy" cgroup "$group"
        case $hierarchy in
        *,*)
            for controller in $(echo "$hierarchy" | tr , ' '); do
                ln -s "$hierarchy" "/sys/fs/cgroup/$controller"
            done
            ;;
        esac
    done
fi

# The node writes to its own folder; those of the machine stay as they are.
mount -t overlay -o lowerdir=/var,upperdir=var,workdir=work overlay /var
# Containers have overlays of their own, which an overlay does not take; and the kubelet has to
# see the mounts of pods.
for part in lib/kubelet lib/containerd; do
    mkdir -p "disk/$part" "/var/$part"
    mount --bind "disk/$part" "/var/$part"
    mount --make-rshared "/var/$part"
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
hostname "$name"
for file in hostname hosts; do
    [ ! -e "/etc/$file" ] || mount --bind "$file" "/etc/$file"
done

# The kubelet sets these for the machine. It gets files instead.
mkdir -p sysctl
while read -r setting value; do
    echo "$value" >"sysctl/${setting##*/}"
    mount --bind "sysctl/${setting##*/}" "/proc/sys/$setting"
done <<EOF
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
EOF

keep() {
    log=$logs/$name-$1.log
    while :; do
        "$@" >>"$log" 2>&1 || true
        echo "$1 has ended and is started again" >>"$log"
        sleep 1
    done
}

# Connected by the testbed.
until [ -e joined ]; do sleep 0.05; done
keep containerd --config "$folder/containerd.toml" &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
[ -e imported ] || ctr --namespace k8s.io images import --local ../pause.tar
: >imported
: >serves
keep kubelet --config "$folder/kubelet.yaml" --kubeconfig "$folder/kubelet.kubeconfig" \
    --cert-dir "$folder/disk/kubelet-certificates" --hostname-override "$name" --node-ip "$address" --v 2 &
keep kube-proxy --proxy-mode nftables --kubeconfig "$folder/proxy.kubeconfig" \
    --hostname-override "$name" --bind-address "$address" --conntrack-max-per-core 0 &
# Also reaps processes whose parents have ended.
while :; do wait; done
