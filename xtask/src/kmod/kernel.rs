//! A Debian kernel and its headers, unpacked in the cache.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::image::Image;
use super::work::{io, remake};
use crate::Outcome;
use crate::exec::{capture, files_under, program, run};

const FLAVOUR: &str = "cloud-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Both kernels with their newest fixes, for the Debian whose tools build here.
const SOURCE: &str = "http://deb.debian.org/debian-security bookworm-security main";

/// A kernel, with what modules for it are built against.
pub(super) struct Kernel {
    release: String,
    image: PathBuf,
    headers: PathBuf,
    /// `lib/modules` of it; none where everything is built in.
    modules: Option<PathBuf>,
}

impl Kernel {
    /// The newest kernel of this version with Debian's security fixes. Debian is asked once a day; when
    /// it does not answer, what the cache holds will do.
    pub(super) fn fetch(version: &str, cache: &Path) -> Outcome<Self> {
        let meta = match version {
            "6.12" => format!("linux-image-6.12-{FLAVOUR}"),
            "6.1" => format!("linux-image-{FLAVOUR}"),
            other => return Err(format!("kernel {other} is not known: 6.12 or 6.1")),
        };
        let folder = cache.join(version);
        // Written last: a fetch that was cut off begins again.
        let ready = folder.join("ready");
        let cached = fs::read_to_string(&ready).map(|text| Self::unpacked(&folder, text.trim()));
        if is_of_today(&ready)
            && let Ok(kernel) = cached
        {
            return Ok(kernel);
        }
        let newest = Apt::new(&cache.join(format!("apt-{version}"))).and_then(|apt| {
            let image = apt.first_dependency(&meta, "linux-image-")?;
            Ok((apt, image))
        });
        let (apt, image) = match (newest, cached) {
            (Ok((apt, image)), Ok(kernel)) if image.ends_with(&kernel.release) => {
                apt.remove()?;
                fs::write(&ready, &kernel.release).map_err(io("ready"))?;
                return Ok(kernel);
            }
            (Err(why), Ok(kernel)) => {
                println!("Debian was not asked for a newer kernel: {why}");
                return Ok(kernel);
            }
            (newest, _) => newest?,
        };
        println!("fetching {image} from Debian");
        remake(&folder)?;
        let release = image["linux-image-".len()..].to_owned();
        let headers = format!("linux-headers-{release}");
        let kbuild = apt.first_dependency(&headers, "linux-kbuild-")?;
        let common = headers.replace(&format!("-{FLAVOUR}"), "-common");
        for deb in apt.download(&[&image, &headers, &common, &kbuild])? {
            run(program("dpkg-deb", ["-x"]).arg(deb).arg(&folder))?;
        }
        apt.remove()?;
        let kernel = Self::unpacked(&folder, &release);
        // The headers name each other by absolute paths.
        let makefile = kernel.headers.join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(io("the headers' Makefile"))?;
        let here = format!("include {}/usr/src/", folder.display());
        fs::write(&makefile, text.replace("include /usr/src/", &here))
            .map_err(io("the headers' Makefile"))?;
        run(program("/sbin/depmod", ["-b"])
            .arg(&folder)
            .arg(&kernel.release))?;
        fs::write(&ready, &kernel.release).map_err(io("ready"))?;
        Ok(kernel)
    }

    /// Debian's packages, unpacked.
    fn unpacked(folder: &Path, release: &str) -> Self {
        Self {
            release: release.to_owned(),
            image: folder.join(format!("boot/vmlinuz-{release}")),
            headers: folder.join(format!("usr/src/linux-headers-{release}")),
            modules: Some(folder.join(format!("lib/modules/{release}"))),
        }
    }

    /// A tree in which a kernel was built, with everything built in.
    pub(super) fn built(tree: PathBuf) -> Outcome<Self> {
        let release = fs::read_to_string(tree.join("include/config/kernel.release"));
        Ok(Self {
            release: release.map_err(io("kernel.release"))?.trim().to_owned(),
            image: tree.join("arch/x86/boot/bzImage"),
            headers: tree,
            modules: None,
        })
    }

    /// Debian's package of this name, for instance a kernel's source.
    pub(super) fn source(package: &str, folder: &Path) -> Outcome<PathBuf> {
        let debs = Apt::new(folder)?.download(&[package])?;
        debs.into_iter()
            .next()
            .ok_or_else(|| format!("no {package} came"))
    }

    pub(super) fn release(&self) -> &str {
        &self.release
    }

    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    pub(super) fn headers(&self) -> &Path {
        &self.headers
    }

    /// Puts modules and what they need into the image; what is no module is built in.
    pub(super) fn stage_modules(&self, image: &Image, names: &[&str]) -> Outcome {
        let Some(folder) = &self.modules else {
            return Ok(());
        };
        let base = format!("lib/modules/{}", self.release);
        let table = fs::read_to_string(folder.join("modules.dep")).map_err(io("modules.dep"))?;
        let mut wanted = BTreeSet::new();
        for line in table.lines() {
            let Some((file, needs)) = line.split_once(':') else {
                continue;
            };
            let stem = file
                .rsplit('/')
                .next()
                .and_then(|name| name.split('.').next());
            let stem = stem.unwrap_or_default().replace('_', "-");
            if names.iter().any(|name| name.replace('_', "-") == stem) {
                wanted.insert(file);
                wanted.extend(needs.split_whitespace());
            }
        }
        for file in wanted {
            let plain = file.trim_end_matches(".xz");
            if plain == file {
                image.add(&folder.join(file), &format!("{base}/{file}"))?;
            } else {
                let mut xz = Command::new("xz");
                let bytes = xz.arg("-dc").arg(folder.join(file)).output();
                let bytes = bytes.map_err(io("xz"))?.stdout;
                image.write_bytes(&format!("{base}/{plain}"), &bytes)?;
            }
        }
        run(program("/sbin/depmod", ["-b"])
            .arg(image.root())
            .arg(&self.release)
            .stderr(std::process::Stdio::null()))
    }
}

/// Whether the file was written within the last day.
fn is_of_today(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|data| data.modified());
    let age = written.ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age < Duration::from_secs(24 * 3600))
}

/// apt with lists and archives of its own: the system's are neither read nor written.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path) -> Outcome<Self> {
        let folder = folder.to_path_buf();
        for part in ["lists/partial", "archives/partial", "debs"] {
            fs::create_dir_all(folder.join(part)).map_err(io("apt's folder"))?;
        }
        fs::write(
            folder.join("sources"),
            format!("deb [signed-by={KEYRING}] {SOURCE}\n"),
        )
        .map_err(io("apt's sources"))?;
        let apt = Self { folder };
        run(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    fn remove(&self) -> Outcome {
        fs::remove_dir_all(&self.folder).map_err(io("apt's folder"))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = program(name, ["-qq"]);
        for (option, value) in [
            ("Dir::Etc::sourcelist", "sources"),
            ("Dir::Etc::sourceparts", "none"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", ""),
        ] {
            let path = self.folder.join(value);
            command
                .arg("-o")
                .arg(format!("{option}={}", path.display()));
        }
        command.args(["-o", "APT::Sandbox::User="]);
        command
    }

    /// The first package that `package` depends on and whose name begins so.
    fn first_dependency(&self, package: &str, prefix: &str) -> Outcome<String> {
        let text = capture(self.command("apt-cache").args(["depends", package]))?;
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .ok_or_else(|| format!("{package} depends on no {prefix}…"))
    }

    fn download(&self, packages: &[&str]) -> Outcome<Vec<PathBuf>> {
        let folder = self.folder.join("debs");
        let mut command = self.command("apt-get");
        run(command.arg("download").args(packages).current_dir(&folder))?;
        Ok(files_under(&folder, "deb"))
    }
}
