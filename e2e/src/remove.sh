# Waits for the end of the input, then ends all that works in the folder $1, keeps its logs if a test did not pass, and
# removes it.
trap '' HUP INT QUIT TERM
while read -r _; do :; done

home=$1
name=cleat-e2e-${home##*/}

# Every component works in the folder, or in a process namespace whose first process does: with that one all others end.
kill_all() {
    find /proc -maxdepth 2 -name cwd \( -lname "$home" -o -lname "$home/*" \) 2>/dev/null |
        while read -r entry; do
            entry=${entry%/cwd}
            kill -KILL "${entry#/proc/}"
        done
}

# The control groups of pods, in every hierarchy. They can be removed when the last process in them is gone.
groups() {
    find /sys/fs/cgroup -depth -type d \( -path "*/$name" -o -path "*/$name/*" \) 2>/dev/null
}

tries=0
while [ "$tries" -lt 200 ]; do
    kill_all
    groups | while read -r group; do rmdir "$group"; done
    # Mounts are private to the namespace and end with it; this is for one whose set-up was cut short.
    grep -o " $home/[^ ]*" /proc/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
    if [ -n "$(ls "$home/running" 2>/dev/null)" ] && [ -d "$home/log" ]; then
        read -r kept <"$home/kept"
        mkdir -p "${kept%/*}"
        rm -rf "$kept"
        cp -R "$home/log" "$kept" && rm -rf "$home/running"
    else
        rm -rf --one-file-system "$home"
    fi
    [ -e "$home" ] || [ -n "$(groups)" ] || break
    sleep 0.05
    tries=$((tries + 1))
done
