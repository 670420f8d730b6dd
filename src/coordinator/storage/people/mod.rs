//! People: what is known of an account beyond its name and roles.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `row` | somebody as the store knows them: one, or a page of all |
//! | `login` | accounts come to be, by a login elsewhere or by an operator |
//! | `change` | what is changed about somebody, in one transaction |
//! | `rewards` | what owners of workers are given for being there: minutes, trust |
//! | `months` | what some are given each month |
//! | `leave` | accounts on their way out, and what is wiped in the end |

mod change;
mod leave;
mod login;
mod months;
mod rewards;
mod row;

pub use change::{Changed, PersonChange};
pub use leave::{Leaving, Left};
pub use login::{LoggedIn, NewLogin, NewPerson, create_person};
pub use rewards::{Attended, Promotion};
pub use row::{Amounts, Order, PersonRow, Records};
