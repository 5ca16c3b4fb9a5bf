# The first process of a node's namespaces. Its mounts are seen in here only.
set -e
home=$1
mkdir -p "$home/log/node" "$home/data/lib" "$home/data/work" "$home/data/sysctl"

# Whatever a component writes to the usual places of the machine it writes to the folder.
mount --bind "$home/log/node" /var/log
mount -t overlay -o "lowerdir=/var/lib,upperdir=$home/data/lib,workdir=$home/data/work" overlay /var/lib
mount -t tmpfs tmpfs /run

# The kubelet finds the settings of the kernel as it wants them, and so does not change the machine's.
setting() {
    echo "$2" >"$home/data/sysctl/${1##*/}"
    mount --bind "$home/data/sysctl/${1##*/}" "/proc/sys/$1"
}
setting vm/overcommit_memory 1
setting vm/panic_on_oom 0
setting kernel/panic 10
setting kernel/panic_on_oops 1
setting kernel/keys/root_maxkeys 1000000
setting kernel/keys/root_maxbytes 25000000

echo 1 >/proc/sys/net/ipv4/ip_forward
ip link set lo up
cd "$home"
echo ready
exec >/dev/null 2>&1
while :; do
    sleep 3600 &
    wait
done
