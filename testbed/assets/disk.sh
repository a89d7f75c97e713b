#!/bin/sh
# A driver of FlexVolumes: disks that one node at a time can have, as those of a cloud. The controller
# manager attaches and detaches them, the kubelets mount them. The link `attached/DISK` names the node that
# has a disk, and the folder `content/DISK` is what is on it.
set -eu
folder={folder}

succeed() {
    echo "{\"status\": \"Success\"${1:+, $1}}"
    exit
}
fail() {
    echo "{\"status\": \"Failure\", \"message\": \"$1\"}"
    exit 1
}
disk() {
    echo "$1" | sed -n 's|.*"kubernetes.io/pvOrVolumeName": *"\([^"]*\)".*|\1|p'
}
node_of() {
    readlink "$folder/attached/$1" || true
}

case $1 in
init) succeed '"capabilities": {"attach": true}' ;;
attach)
    name=$(disk "$2")
    ln -s "$3" "$folder/attached/$name" 2>/dev/null || [ "$(node_of "$name")" = "$3" ] ||
        fail "the disk $name is attached to $(node_of "$name")"
    succeed "\"device\": \"$name\""
    ;;
isattached)
    [ "$(node_of "$(disk "$2")")" = "$3" ] && succeed '"attached": true' || succeed '"attached": false'
    ;;
detach)
    [ "$(node_of "$2")" != "$3" ] || rm "$folder/attached/$2"
    succeed
    ;;
waitforattach)
    [ "$(node_of "$2")" = "$(hostname)" ] || fail "the disk $2 is attached to $(node_of "$2")"
    succeed "\"device\": \"$2\""
    ;;
mountdevice)
    mkdir -p "$2" "$folder/content/$3"
    mount --bind "$folder/content/$3" "$2"
    succeed
    ;;
unmountdevice)
    umount "$2"
    succeed
    ;;
*)
    echo '{"status": "Not supported"}'
    exit 1
    ;;
esac
