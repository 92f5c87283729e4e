#!/usr/bin/env bash
# Runs a program under an emulated CPU that has AVX-512, on machines without it: Bochs boots a
# Debian kernel with the program as its first process. Run by hand, not by ./dev test: it proves the
# bits of the AVX-512 levels, but not their speed (a test of one second takes about two minutes).
#
#   tools/emulate_levels.sh FOLDER COMMAND…      FOLDER becomes the root of the emulated machine;
#                                                COMMAND (a path in it, and arguments) runs there.
#
# A program that is not static needs its libraries and its loader in FOLDER; a busybox there runs a
# script of several. The output of the command appears on stdout; the exit code is its own, 124
# after TIME seconds (environment, default 3000).
#
# BOCHS (environment): the command that starts Bochs 3.0, Debian 13's, whose model sapphire_rapids
# has AVX-512, VNNI and BF16: `BOCHS="chroot DEBIAN13 bochs"` from an older Debian, TMPDIR being a
# folder that is at the same path in both. CPU selects another model. Known problems of versions:
#   2.7 (Debian 12)  CPU=corei7_skylake_x (AVX-512 alone); VCVTPS2PH rounds ties the wrong way: a test that
#                    compares rows stored as f16 with the scalar level fails for AVX2 and AVX-512 alike
#   3.1              integer divisions go wrong: models are refused for reasons that are not so
# The kernel is started without features that Bochs lacks or implements differently: AMX, the
# compacted form of XSAVE, HPET, the local APIC and a second CPU.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,23p' "$0"; exit 2; }
folder=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpu=${CPU:-sapphire_rapids}
bochs=${BOCHS:-bochs}

deps() {
  local packages=(bochs bochs-term bochsbios vgabios)
  [ -z "${BOCHS:-}" ] || packages=() # its own machine has them
  apt-get install -y -qq --no-install-recommends "${packages[@]}" isolinux syslinux-common \
    genisoimage cpio gcc libc6-dev bsdutils >/dev/null
  local image
  image=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ {print $2}')
  (cd "$work" && apt-get download -qq "$image" 2>/dev/null && dpkg -x "$image"_*.deb kernel)
}

# The first process: mounts nothing, runs the command, prints its exit code, stops the machine.
init() {
  cat >"$work/init.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    char *const argv[] = {COMMAND, NULL};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execv(argv[0], argv);
        _exit(127);
    }
    waitpid(child, &status, 0);
    printf("\n@@ exit %d @@\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fflush(stdout);
    for (;;)
        pause();
}
C
  local list="" word
  for word in "$@"; do list+="\"$word\","; done
  gcc -O1 -static -D"COMMAND=${list%,}" -o "$work/root/init" "$work/init.c"
}

image() {
  mkdir -p "$work/iso/isolinux" "$work/root/dev"
  cp -r "$folder/." "$work/root/"
  mknod "$work/root/dev/console" c 5 1
  init "$@"
  (cd "$work/root" && find . | cpio -o -H newc 2>/dev/null | gzip -1 >"$work/iso/initrd.gz")
  cp "$work"/kernel/boot/vmlinuz* "$work/iso/vmlinuz"
  cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/iso/isolinux/"
  cat >"$work/iso/isolinux/isolinux.cfg" <<'EOF2'
DEFAULT l
PROMPT 0
LABEL l
KERNEL /vmlinuz
APPEND initrd=/initrd.gz console=ttyS0 quiet mitigations=off nokaslr tsc=unstable acpi=off noapic nolapic nosmp lpj=1000000 no5lvl hardened_usercopy=off noxsaves clearcpuid=mpx,pku,xsaves,xsavec,waitpkg,fsrm,erms,smap,smep,umip,pcid,invpcid,tsc_deadline_timer,x2apic,rdrand,rdseed,ibt,amx_tile,amx_int8,amx_bf16
EOF2
  genisoimage -quiet -o "$work/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$work/iso"
}

deps
image "$@"
cat >"$work/bochsrc" <<EOF
megs: 1024
cpu: model=$cpu, count=1, ips=20000000, reset_on_triple_fault=0
romimage: file=\$BXSHARE/BIOS-bochs-latest
vgaromimage: file=\$BXSHARE/VGABIOS-lgpl-latest
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial
log: $work/log
panic: action=report
error: action=ignore
info: action=ignore
display_library: term
EOF
echo c >"$work/commands" # for builds with a debugger, which wait at its prompt
: >"$work/serial"
TERM=xterm setsid timeout "${TIME:-3000}" script -f -qc \
  "$bochs -q -f $work/bochsrc -rc $work/commands" "$work/screen" >/dev/null 2>&1 </dev/null &
emulator=$!
while kill -0 "$emulator" 2>/dev/null && ! grep -q '@@ exit' "$work/serial"; do sleep 2; done
pkill -f "$work/bochsrc" 2>/dev/null || true
sed '/^\[ *[0-9.]*\]/d; /@@ exit/d' "$work/serial"
code=$(sed -n 's/.*@@ exit \([0-9]*\) @@.*/\1/p' "$work/serial")
exit "${code:-124}"
