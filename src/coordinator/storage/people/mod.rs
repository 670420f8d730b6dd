//! Users: the data of an account beyond its name and roles.
//!
//! | file | contents |
//! | --- | --- |
//! | `row` | users as stored: one, or a page of all |
//! | `login` | creation of accounts, by a login elsewhere or by an operator |
//! | `change` | changes of a user in one transaction |
//! | `rewards` | rewards of worker owners: uptime, trust |
//! | `months` | monthly kudos |
//! | `leave` | deletion of accounts |

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
