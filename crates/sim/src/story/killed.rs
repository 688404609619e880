//! Clients that end without a word, as a mount does that is killed.

use super::{Story, difference, read_whole};
use crate::copies::Holders;
use vazao_client::OpenMode;
use vazao_model::{Code, InodeId};

impl Story {
    /// Ends a client, and goes on from what it has left of the files that it had open. What lies in their objects
    /// behind their ends is no part of that: they are not cut or written anew, so that it would be seen once they grow.
    pub(super) fn kill_client(&mut self) {
        if self.profile.kills == 0 {
            return self.let_time_pass();
        }
        let client = self.client();
        if self.handles.iter().all(|handle| handle.client != client) {
            return self.let_time_pass();
        }
        self.note(format!("{client} is killed"));
        self.cluster.heal();
        self.collect_ends();
        self.killed += 1;
        let newcomer = self.cluster.client(100 + self.killed);
        std::mem::forget(std::mem::replace(&mut self.clients[client], newcomer));
        let (killed, others) =
            std::mem::take(&mut self.handles).into_iter().partition(|handle| handle.client == client);
        self.handles = others;
        for handle in killed {
            std::mem::forget(handle.file);
            self.doubt(handle.inode);
            self.forget_conversion(handle.inode);
            if self.tree.nodes.contains_key(&handle.inode) && !self.has_meta_lost_power {
                self.go_on_with(handle.inode);
            }
        }
        self.adopt_files();
        self.cluster.set_weather(self.profile.weather);
    }

    /// What is there of a file is what it has from now on, durably.
    fn go_on_with(&mut self, inode: u64) {
        match read_whole(&self.clients[0], inode) {
            Ok(bytes) => {
                let contents = &self.contents[&inode];
                let holders = Holders::of(&self.cluster, &self.clients[0], inode);
                assert!(
                    contents.allows(&bytes, &holders)
                        && contents.sizes_ever().contains(&(bytes.len() as u64)),
                    "contents of {inode} after its client was killed: {}",
                    difference(contents, &bytes)
                );
                let mode = OpenMode { write: true, ..OpenMode::default() };
                let file = self.clients[0].open_file(InodeId(inode), mode).expect("fair weather");
                file.sync().expect("fair weather");
                file.close().expect("fair weather");
                if let Some(node) = self.tree.nodes.get_mut(&inode) {
                    node.size = bytes.len() as u64;
                }
                self.contents.entry(inode).or_default().lose_writer(bytes);
            }
            Err(error) if error.code == Code::Corrupt => self.rewrite(inode, Vec::new()),
            Err(error) => panic!("{inode} in fair weather: {error}"),
        }
    }
}
