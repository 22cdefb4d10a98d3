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
