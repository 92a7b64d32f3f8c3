//! An API server of one test's own, whose processes are killed and started again in place.

use std::io::{BufRead, BufReader, Write};

use crate::support::api_server::ApiServer;

impl ApiServer {
    fn order(&self, order: &str) {
        let mut supervisor = self.supervisor.lock().unwrap();
        writeln!(supervisor.stdin.as_mut().unwrap(), "{order}").unwrap();
        let mut done = String::new();
        BufReader::new(supervisor.stdout.as_mut().unwrap()).read_line(&mut done).unwrap();
        assert_eq!(done.trim(), order);
    }

    /// Kills kube-apiserver; when this returns it is gone.
    pub(crate) fn kill_api(&self) {
        self.order("kill-api");
    }

    /// Starts kube-apiserver again, at the same address.
    pub(crate) async fn start_api(&self) {
        self.order("start-api");
        self.wait_until_ready().await;
    }

    /// Kills etcd; its data stays.
    pub(crate) fn kill_etcd(&self) {
        self.order("kill-etcd");
    }

    /// Starts etcd again, with its data.
    pub(crate) async fn start_etcd(&self) {
        self.order("start-etcd");
        self.wait_until_ready().await;
    }

    /// Saves what etcd has by now, as a backup does.
    pub(crate) async fn save(&self) {
        self.kill_etcd();
        self.order("save-etcd");
        self.start_etcd().await;
    }

    /// Goes back to what was saved, with both stopped meanwhile.
    pub(crate) async fn restore(&self) {
        self.kill_api();
        self.kill_etcd();
        self.order("restore-etcd");
        self.order("start-etcd");
        self.start_api().await;
    }
}
