"""What hurts the machine of one process alone: its wall clock (libfaketime reads an offset from a file), and its disk (a small file system of its own in
memory, which becomes as small as it is full). What the machine at hand does not permit is named in `missing`, and not done."""
import glob, os, subprocess

class Clocks:
    """Only the wall clock: monotonic clocks go on, as they do when somebody sets the time."""
    def __init__(self, work):
        found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1") + glob.glob("/usr/lib/faketime/libfaketimeMT.so.1")
        self.library, self.work = (found[0] if found else None), work
        self.missing = [] if found else ["clock jumps (libfaketime is not installed)"]

    def env(self, name):
        if not self.library: return {}
        file = self.work / f"clock-{name}"
        if not file.exists(): file.write_text("+0\n")
        return {"LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}

    def jump(self, name, rng):
        """Hours, forwards or backwards, or months; it stays so, through restarts too."""
        by = rng.choice(["+6h", "-6h", "+30h", "-30h", "+100d", "-100d", "+0"])
        new = self.work / "clock-new"
        new.write_text(by + "\n")
        new.rename(self.work / f"clock-{name}")

    def off(self, name):
        """Seconds that the clock of that process is wrong by."""
        if not self.library: return 0
        text = (self.work / f"clock-{name}").read_text().strip()
        return int(text.rstrip("hd")) * {"h": 3600, "d": 86400}.get(text[-1], 1)

class Disks:
    """A tmpfs a name; full: its size becomes what is used."""
    SIZE = "400m"

    def __init__(self, work, names):
        self.at, self.missing = {}, []
        for name in names:
            folder = work / name
            folder.mkdir(exist_ok=True)
            if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.SIZE},mode=755", "kiln-chaos", folder], capture_output=True).returncode == 0: self.at[name] = folder
        if not self.at: self.missing.append("full disks (this user may not mount)")

    def full(self, name):
        s = os.statvfs(self.at[name])
        used = (s.f_blocks - s.f_bfree) * s.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={max(used, 4096)}", self.at[name]], capture_output=True)

    def heal(self):
        for name in self.at: self.free(name)
    def free(self, name): subprocess.run(["mount", "-o", f"remount,size={self.SIZE}", self.at[name]], check=True)
    def close(self):
        while self.at: subprocess.run(["umount", "-l", self.at.popitem()[1]], capture_output=True)
