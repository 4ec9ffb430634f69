#!/bin/sh
# Runs a command as process 1 in a new root, like a container engine: with namespaces and mounts, without an image. The folder
# becomes the root. The system and Node, which a base image would contain, are mounted from this machine, read-only.
#
#   unshare --mount --pid --fork --kill-child sh enter-root.sh <root> <ro|rw> <extra folder or -> <uid:gid> <workdir> <word …>
set -eu
root=$1 mode=$2 extra=$3 user=$4 workdir=$5
shift 5

mount --make-rprivate /
mount --bind "$root" "$root"
for dir in /usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /run; do
  if [ -L "$dir" ]; then
    [ -L "$root$dir" ] || ln -s "$(readlink "$dir")" "$root$dir"
  elif [ -d "$dir" ]; then
    mkdir -p "$root$dir"
    mount --bind "$dir" "$root$dir"
    mount -o remount,ro,bind "$root$dir"
  fi
done
if [ "$extra" != - ]; then
  mkdir -p "$root$extra"
  mount --rbind "$extra" "$root$extra"
fi
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root$workdir"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
[ "$mode" = rw ] || mount -o remount,ro,bind "$root"

cd "$root$workdir"
exec chroot "$root" /usr/bin/env --chdir="$workdir" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups \
  $([ "$mode" = rw ] || echo --no-new-privs --bounding-set=-all --inh-caps=-all) "$@"
