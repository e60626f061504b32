use std::sync::{Arc, Mutex};
use std::task::Wake;

use super::*;

/// Notes its number when it is woken.
struct Task(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// A line of tasks, and who was woken.
struct Line {
    waiters: Waiters,
    keys: Vec<Option<WaiterKey>>,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Line {
    fn of(tasks: usize) -> Self {
        let mut line = Self {
            waiters: Waiters::default(),
            keys: vec![None; tasks],
            woken: Arc::default(),
        };
        (0..tasks).for_each(|task| line.wait(task));
        line
    }

    fn wait(&mut self, task: usize) {
        let waker = Waker::from(Arc::new(Task(task, Arc::clone(&self.woken))));
        let _ = self.waiters.register(&mut self.keys[task], &waker);
    }

    /// Who is woken when there are so many.
    fn call(&mut self, supply: usize) -> Vec<usize> {
        let mut wake = Vec::new();
        self.waiters.call(supply, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        std::mem::take(&mut self.woken.lock().unwrap())
    }

    fn may_take(&self, task: usize, supply: usize) -> bool {
        self.waiters.may_take(self.keys[task], supply)
    }

    fn leave(&mut self, task: usize) {
        if let Some(key) = self.keys[task].take() {
            let _ = self.waiters.leave(key);
        }
    }
}

#[test]
fn as_many_are_woken_as_there_is_for_in_the_order_they_came() {
    let mut line = Line::of(10);
    assert_eq!(line.call(0), [0usize; 0]);
    assert_eq!(line.call(3), [0, 1, 2]);
    assert_eq!(line.call(3), [0usize; 0], "these have not taken theirs yet");
    assert_eq!(line.call(5), [3, 4]);
    assert!(line.may_take(4, 5) && !line.may_take(5, 6));
    for task in [1, 0, 4] {
        line.leave(task);
    }
    // Two are called and have not taken theirs.
    assert_eq!(line.call(3), [5]);
    assert_eq!(line.call(100), [6, 7, 8, 9]);
}

#[test]
fn who_leaves_costs_nobody_a_wake() {
    let mut line = Line::of(6);
    line.leave(0);
    line.leave(2);
    assert_eq!(line.call(2), [1, 3]);
    // Called, and gone before it took anything.
    line.leave(1);
    assert_eq!(line.call(2), [4]);
    line.leave(3);
    line.leave(4);
    line.leave(5);
    assert!(line.waiters.is_empty() && line.waiters.places.is_empty());
}

#[test]
fn a_newcomer_takes_nothing_that_others_wait_for() {
    let mut line = Line::of(2);
    assert!(!line.waiters.may_take(None, 5));
    assert_eq!(line.call(2), [0, 1]);
    assert!(!line.waiters.may_take(None, 2));
    assert!(line.waiters.may_take(None, 3));
    line.leave(0);
    line.leave(1);
    assert!(
        line.waiters.may_take(None, 0),
        "and finds that there is none"
    );
}

#[test]
fn who_was_called_and_found_nothing_keeps_its_place() {
    let mut line = Line::of(4);
    assert_eq!(line.call(2), [0, 1]);
    line.leave(0);
    line.wait(1);
    assert_eq!(line.call(1), [1]);
    line.leave(1);
    assert_eq!(line.call(1), [2]);
    line.wait(3);
    assert_eq!(line.call(2), [3]);
}

#[test]
fn an_event_for_all_empties_the_line() {
    let mut line = Line::of(5);
    line.leave(3);
    assert_eq!(line.call(1), [0]);
    let mut wake = Vec::new();
    line.waiters.wake_all(&mut wake);
    assert_eq!(wake.len(), 3);
    assert!(line.waiters.may_take(line.keys[4], 0));
    line.wait(4);
    assert_eq!(line.call(1), [4]);
}

#[test]
fn a_line_in_which_many_come_and_go_stays_short() {
    let mut line = Line::of(1000);
    for task in 1..999 {
        line.leave(task);
        line.wait(task);
    }
    assert!(line.waiters.places.len() <= 2000 + MOST_EMPTY);
    assert_eq!(line.call(3), [0, 999, 1]);
    (0..1000).for_each(|task| line.leave(task));
    assert!(line.waiters.places.is_empty());
}
