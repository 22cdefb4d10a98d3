// Shows, of all answers of the install selector, the one that fits what is chosen.
document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("form.install")) {
    const groups = [...form.querySelectorAll("fieldset")];
    for (const group of groups) group.querySelector("input").checked = true;
    const show = () => {
      const key = groups.map((group) => group.querySelector("input:checked").value).join(" ");
      for (const answer of document.querySelectorAll(".install-answer")) {
        answer.hidden = answer.dataset.for !== key;
        answer.querySelector("p").hidden = true; // the choice is named above
      }
    };
    form.addEventListener("change", show);
    show();
  }
});

// The theme leaves the toggles of nested pages without a name, which screen readers need.
document.addEventListener("DOMContentLoaded", () => {
  for (const toggle of document.querySelectorAll(".bd-sidebar-primary summary")) {
    const page = toggle.closest("li").querySelector("a");
    toggle.setAttribute("aria-label", `Pages below ${page.textContent.trim()}`);
  }
});

// A message that torch-doctor knows comes first among the results, with whatever paths and symbols
// it holds, and so does the page of a topic: Sphinx's own search wants every word in one page.
document.addEventListener("DOMContentLoaded", () => {
  const results = document.querySelector("#search-results");
  const question = new URLSearchParams(window.location.search).get("q");
  if (!results || !question) return;
  const messages = KNOWN_MESSAGES.filter((entry) =>
    [entry.pattern, entry.also].every((pattern) => new RegExp(pattern, "m").test(question)),
  );
  const topics = KNOWN_TOPICS.filter((entry) =>
    new RegExp(`^(${entry.pattern})$`, "i").test(question.trim()),
  );
  const [heading, known] =
    topics.length > 0 ? ["Start here", topics] : ["This message means", messages];
  const pages = new Map(known.map((entry) => [entry.page, entry]));
  if (pages.size === 0) return;
  const list = document.createElement("ul");
  list.className = "search known-messages";
  for (const entry of [...pages.values()].slice(0, 3)) {
    const link = document.createElement("a");
    link.href = document.documentElement.dataset.content_root + entry.page;
    link.textContent = entry.title;
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  const title = document.createElement("h2");
  title.textContent = heading;
  results.before(title, list);
  // With an answer above it, Sphinx's "did not match any documents" would say the opposite.
  results.classList.add("below-an-answer");
});

// What scrolls sideways on a narrow screen must be in reach of the keyboard.
window.addEventListener("load", () => {
  for (const frame of document.querySelectorAll(".bd-article p:has(> img)")) {
    if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
  }
});
