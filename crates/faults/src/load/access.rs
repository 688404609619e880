//! The ways to a volume: a mount, the library, the command line.

use super::tree::Place;
use rustix::fs::{CWD, RenameFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, Result, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use vazao_client::{Changes, Client, Config, NewInode, OpenMode, RenameMode, XattrMode};
use vazao_model::{FileKind, InodeId};

/// The name of the attribute that is set.
pub(crate) const ATTRIBUTE: &str = "user.power";

/// A name, as each way needs it.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// From the writer's directory.
    pub(crate) path: String,
    /// The directory's inode.
    pub(crate) directory: u64,
    /// In the directory.
    pub(crate) place: Place,
}

/// A node that is there.
#[derive(Clone, Debug)]
pub(crate) struct There {
    /// From the writer's directory.
    pub(crate) path: String,
    /// Its inode.
    pub(crate) inode: u64,
}

/// A way to the volume. What a way does not have it refuses with `Unsupported`, and is not asked for again.
pub(crate) trait Access {
    /// Creates a file and leaves it open as `node`.
    fn create(&mut self, _at: &Name, _node: u64, _mode: u32) -> Result<u64> {
        unsupported()
    }
    /// Opens a file as `node`.
    fn open(&mut self, _there: &There, _node: u64, _appends: bool) -> Result<()> {
        unsupported()
    }
    /// Closes it.
    fn close(&mut self, _node: u64) -> Result<()> {
        unsupported()
    }
    /// Copies a local file of these bytes.
    fn copy(&mut self, _at: &Name, _bytes: &[u8]) -> Result<u64> {
        unsupported()
    }
    fn make_directory(&mut self, _at: &Name, _mode: u32) -> Result<u64> {
        unsupported()
    }
    fn make_link(&mut self, _at: &Name, _target: &str) -> Result<u64> {
        unsupported()
    }
    fn link(&mut self, _there: &There, _at: &Name) -> Result<()> {
        unsupported()
    }
    fn unlink(&mut self, _at: &Name) -> Result<()> {
        unsupported()
    }
    fn remove_directory(&mut self, _at: &Name) -> Result<()> {
        unsupported()
    }
    fn rename(&mut self, _from: &Name, _to: &Name) -> Result<()> {
        unsupported()
    }
    fn exchange(&mut self, _one: &Name, _other: &Name) -> Result<()> {
        unsupported()
    }
    fn set_mode(&mut self, _there: &There, _mode: u32) -> Result<()> {
        unsupported()
    }
    fn set_attribute(&mut self, _there: &There, _value: u8) -> Result<()> {
        unsupported()
    }
    fn write(&mut self, _node: u64, _offset: u64, _bytes: &[u8]) -> Result<()> {
        unsupported()
    }
    fn append(&mut self, _node: u64, _bytes: &[u8]) -> Result<()> {
        unsupported()
    }
    fn truncate(&mut self, _node: u64, _length: u64) -> Result<()> {
        unsupported()
    }
    fn sync_file(&mut self, _node: u64) -> Result<()> {
        unsupported()
    }
    fn sync_directory(&mut self, _there: &There) -> Result<()> {
        unsupported()
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}

fn closed() -> Error {
    Error::other("the file is not open")
}

/// A mount.
pub(crate) struct Mounted {
    directory: PathBuf,
    files: BTreeMap<u64, File>,
}

impl Mounted {
    /// Below `directory` of a mount.
    pub(crate) fn new(directory: &Path) -> Mounted {
        Mounted { directory: directory.to_owned(), files: BTreeMap::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn file(&self, node: u64) -> Result<&File> {
        self.files.get(&node).ok_or_else(closed)
    }
}

impl Access for Mounted {
    fn create(&mut self, at: &Name, node: u64, mode: u32) -> Result<u64> {
        let open =
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(self.at(&at.path));
        let file = open?;
        let inode = file.metadata()?.ino();
        self.files.insert(node, file);
        Ok(inode)
    }
    fn open(&mut self, there: &There, node: u64, appends: bool) -> Result<()> {
        // Writing only, so that both ways past and through the kernel's pages are taken.
        let file = OpenOptions::new().write(true).append(appends).open(self.at(&there.path))?;
        self.files.insert(node, file);
        Ok(())
    }
    fn close(&mut self, node: u64) -> Result<()> {
        // Dropping it tells of no error.
        Ok(nix::unistd::close(self.files.remove(&node).ok_or_else(closed)?)?)
    }
    fn make_directory(&mut self, at: &Name, mode: u32) -> Result<u64> {
        let path = self.at(&at.path);
        fs::DirBuilder::new().mode(mode).create(&path)?;
        Ok(fs::metadata(path)?.ino())
    }
    fn make_link(&mut self, at: &Name, target: &str) -> Result<u64> {
        let path = self.at(&at.path);
        std::os::unix::fs::symlink(target, &path)?;
        Ok(fs::symlink_metadata(path)?.ino())
    }
    fn link(&mut self, there: &There, at: &Name) -> Result<()> {
        fs::hard_link(self.at(&there.path), self.at(&at.path))
    }
    fn unlink(&mut self, at: &Name) -> Result<()> {
        fs::remove_file(self.at(&at.path))
    }
    fn remove_directory(&mut self, at: &Name) -> Result<()> {
        fs::remove_dir(self.at(&at.path))
    }
    fn rename(&mut self, from: &Name, to: &Name) -> Result<()> {
        fs::rename(self.at(&from.path), self.at(&to.path))
    }
    fn exchange(&mut self, one: &Name, other: &Name) -> Result<()> {
        let flags = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(CWD, self.at(&one.path), CWD, self.at(&other.path), flags)?)
    }
    fn set_mode(&mut self, there: &There, mode: u32) -> Result<()> {
        fs::set_permissions(self.at(&there.path), Permissions::from_mode(mode))
    }
    fn set_attribute(&mut self, there: &There, value: u8) -> Result<()> {
        Ok(rustix::fs::lsetxattr(self.at(&there.path), ATTRIBUTE, &[value], XattrFlags::empty())?)
    }
    fn write(&mut self, node: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file(node)?.write_all_at(bytes, offset)
    }
    fn append(&mut self, node: u64, bytes: &[u8]) -> Result<()> {
        self.file(node)?.write_all(bytes)
    }
    fn truncate(&mut self, node: u64, length: u64) -> Result<()> {
        self.file(node)?.set_len(length)
    }
    fn sync_file(&mut self, node: u64) -> Result<()> {
        let file = self.file(node)?;
        if node.is_multiple_of(2) { file.sync_all() } else { file.sync_data() }
    }
    fn sync_directory(&mut self, there: &There) -> Result<()> {
        File::open(self.at(&there.path))?.sync_all()
    }
}

/// The client library.
pub(crate) struct Library {
    client: Client,
    files: BTreeMap<u64, vazao_client::File>,
}

fn failed(error: vazao_client::Error) -> Error {
    Error::other(error.to_string())
}

impl Library {
    /// A session of its own.
    pub(crate) fn connect(config: &Path) -> Result<Library> {
        let config = Config::load(config).map_err(failed)?;
        Ok(Library { client: Client::connect(&config).map_err(failed)?, files: BTreeMap::new() })
    }

    fn file(&self, node: u64) -> Result<&vazao_client::File> {
        self.files.get(&node).ok_or_else(closed)
    }

    fn make(&self, at: &Name, kind: FileKind, mode: u32, contents: &[u8]) -> Result<u64> {
        let new = NewInode { kind, mode, contents: contents.to_vec(), ..NewInode::default() };
        let made = self.client.create(InodeId(at.directory), at.place.name.as_bytes(), &new);
        made.map(|attributes| attributes.inode.0).map_err(failed)
    }

    fn move_name(&self, from: &Name, to: &Name, mode: RenameMode) -> Result<()> {
        let (one, other) = (InodeId(from.directory), InodeId(to.directory));
        let names = (from.place.name.as_bytes(), to.place.name.as_bytes());
        self.client.rename(one, names.0, other, names.1, mode).map_err(failed)
    }
}

impl Access for Library {
    fn create(&mut self, at: &Name, node: u64, mode: u32) -> Result<u64> {
        let inode = self.make(at, FileKind::File, mode, &[])?;
        self.open(&There { path: String::new(), inode }, node, false)?;
        Ok(inode)
    }
    fn open(&mut self, there: &There, node: u64, _appends: bool) -> Result<()> {
        let mode = OpenMode { read: true, write: true, truncate: false };
        let file = self.client.open_file(InodeId(there.inode), mode).map_err(failed)?;
        self.files.insert(node, file);
        Ok(())
    }
    fn close(&mut self, node: u64) -> Result<()> {
        self.files.remove(&node).ok_or_else(closed)?.close().map_err(failed)
    }
    fn make_directory(&mut self, at: &Name, mode: u32) -> Result<u64> {
        self.make(at, FileKind::Directory, mode, &[])
    }
    fn make_link(&mut self, at: &Name, target: &str) -> Result<u64> {
        self.make(at, FileKind::Symlink, 0o777, target.as_bytes())
    }
    fn link(&mut self, there: &There, at: &Name) -> Result<()> {
        let (inode, directory) = (InodeId(there.inode), InodeId(at.directory));
        self.client.link(inode, directory, at.place.name.as_bytes()).map(drop).map_err(failed)
    }
    fn unlink(&mut self, at: &Name) -> Result<()> {
        self.client.unlink(InodeId(at.directory), at.place.name.as_bytes()).map_err(failed)
    }
    fn remove_directory(&mut self, at: &Name) -> Result<()> {
        self.client.remove_directory(InodeId(at.directory), at.place.name.as_bytes()).map_err(failed)
    }
    fn rename(&mut self, from: &Name, to: &Name) -> Result<()> {
        self.move_name(from, to, RenameMode::Replace)
    }
    fn exchange(&mut self, one: &Name, other: &Name) -> Result<()> {
        self.move_name(one, other, RenameMode::Exchange)
    }
    fn set_mode(&mut self, there: &There, mode: u32) -> Result<()> {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        self.client.set_attributes(InodeId(there.inode), &changes).map(drop).map_err(failed)
    }
    fn set_attribute(&mut self, there: &There, value: u8) -> Result<()> {
        let (inode, name) = (InodeId(there.inode), ATTRIBUTE.as_bytes());
        self.client.set_xattr(inode, name, &[value], XattrMode::Either).map_err(failed)
    }
    fn write(&mut self, node: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file(node)?.write_at(bytes, offset).map_err(failed)
    }
    fn truncate(&mut self, node: u64, length: u64) -> Result<()> {
        self.file(node)?.set_length(length).map_err(failed)
    }
    fn sync_file(&mut self, node: u64) -> Result<()> {
        self.file(node)?.sync().map_err(failed)
    }
    fn sync_directory(&mut self, _there: &There) -> Result<()> {
        self.client.sync().map_err(failed)
    }
}

/// `vazao` commands.
pub(crate) struct Commands {
    program: PathBuf,
    /// In the volume.
    directory: String,
    scratch: tempfile::TempDir,
}

impl Commands {
    /// Below `directory` of the volume that `VAZAO_CLUSTER` names.
    pub(crate) fn new(program: &Path, directory: &str) -> Result<Commands> {
        let (program, directory) = (program.to_owned(), directory.to_owned());
        Ok(Commands { program, directory, scratch: tempfile::tempdir()? })
    }

    fn at(&self, path: &str) -> String {
        format!("vz:{}/{path}", self.directory)
    }

    #[allow(clippy::disallowed_methods, reason = "commands of vazao have a deadline")]
    fn run(&self, words: &[&str]) -> Result<()> {
        let output = Command::new(&self.program).args(words).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}

impl Access for Commands {
    fn copy(&mut self, at: &Name, bytes: &[u8]) -> Result<u64> {
        let local = self.scratch.path().join("file");
        fs::write(&local, bytes)?;
        // The command does not say which inode it made.
        self.run(&["cp", &local.to_string_lossy(), &self.at(&at.path)]).map(|()| 0)
    }
    fn make_directory(&mut self, at: &Name, _mode: u32) -> Result<u64> {
        self.run(&["mkdir", &self.at(&at.path)]).map(|()| 0)
    }
    fn link(&mut self, there: &There, at: &Name) -> Result<()> {
        self.run(&["ln", &self.at(&there.path), &self.at(&at.path)])
    }
    fn unlink(&mut self, at: &Name) -> Result<()> {
        self.run(&["rm", &self.at(&at.path)])
    }
    fn remove_directory(&mut self, at: &Name) -> Result<()> {
        self.run(&["rm", "-r", &self.at(&at.path)])
    }
    fn rename(&mut self, from: &Name, to: &Name) -> Result<()> {
        self.run(&["mv", &self.at(&from.path), &self.at(&to.path)])
    }
}
